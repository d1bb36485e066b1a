"""The methods of the literature, a module or two a paper; a public module here is one, by its name."""
