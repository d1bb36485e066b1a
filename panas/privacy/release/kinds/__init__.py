"""The kinds of a release: each module here is one, and its name is the module's."""
