"""The Flower App: a relay at the hub and one at each site, neither of which decodes a frame."""
