"""The front door: one file per subcommand. It parses, calls and prints."""
