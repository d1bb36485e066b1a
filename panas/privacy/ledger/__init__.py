"""The record of what was spent, written before data are touched."""
