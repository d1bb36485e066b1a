"""From releases back to images."""
