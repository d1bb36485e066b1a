"""What a user of one site calls, and the pictures of what came out."""
