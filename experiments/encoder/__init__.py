"""An encoder of pictures that nobody's data have shaped: see `__main__`."""
