"""How sites search for an architecture, in the methods whose own file would be too long with it."""
