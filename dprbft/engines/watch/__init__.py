"""What an operator sees of a hub or a node: counts, in Prometheus's text format, at /metrics."""
