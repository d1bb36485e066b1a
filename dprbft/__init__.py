"""The federation: many clients and a server, trained by representations (DPRBFT)."""
