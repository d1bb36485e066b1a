"""Data sets, by name or from files, and their splits: search, train, validation, test."""
