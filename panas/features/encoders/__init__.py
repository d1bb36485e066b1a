"""Frozen public encoders: their files, and the vectors that they make of pictures."""
