"""A sum of vectors of which nobody learns more than the sum: masks, shares, and their protocol."""
