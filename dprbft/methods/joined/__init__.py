"""Method `joined`: one release, one shared head, and what a site makes of it."""
