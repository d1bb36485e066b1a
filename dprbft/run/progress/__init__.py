"""How far a run has come, and how long it will take."""
