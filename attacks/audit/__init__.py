"""The audit of a run, or of a network trained elsewhere."""
