"""What runs where the releases arrive."""
