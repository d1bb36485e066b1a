"""The sites of a run: where they come from, and what the run knows of them."""
