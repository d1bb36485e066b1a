"""What a search for an architecture looks at, and what that costs: a mode a module."""
