"""What may leave a site, and at what price."""
