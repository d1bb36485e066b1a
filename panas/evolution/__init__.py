"""The genetic search for an architecture."""
