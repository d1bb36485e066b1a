"""What stands before Flower's SuperLink at a hub: its sockets, and a look at each request."""
