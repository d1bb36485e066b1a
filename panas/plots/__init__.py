"""Pictures of searches, tunings and networks."""
