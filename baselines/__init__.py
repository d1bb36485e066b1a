"""The methods of the literature, one or two modules a paper; public modules are methods by name."""
