"""What may leave a client, at what price, and the record of it."""
