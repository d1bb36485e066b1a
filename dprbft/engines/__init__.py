"""What carries messages between sites and server."""
