"""Servers that do not keep to the protocol."""
