"""What a federation across machines needs on disk: keys, certificates, settings, start scripts."""
