"""What carries messages between clients and server."""
