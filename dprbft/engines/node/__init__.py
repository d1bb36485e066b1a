"""The process at a site that owns its data, and how others on that machine ask it."""
