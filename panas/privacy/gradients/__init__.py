"""Per-sample gradients, clipped and noised."""
