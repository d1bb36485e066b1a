"""Flower between hub and sites: the carrier, the SuperLink, the SuperNode, and relays of bytes."""
