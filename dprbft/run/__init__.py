"""A run's stages, progress and summary."""
