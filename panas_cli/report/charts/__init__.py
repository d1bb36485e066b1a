"""Pictures of a report: each a pure function from figures to one SVG element."""
