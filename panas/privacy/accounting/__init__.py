"""What mechanisms cost together: events, and their epsilon at a delta."""
