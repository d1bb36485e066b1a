"""Readers of data files: archives, folders of pictures, tables."""
