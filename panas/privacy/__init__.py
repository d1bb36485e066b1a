"""What may leave a site, at what price, and the record of it."""
