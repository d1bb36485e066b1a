"""A hostile hub against a real node: requests mutated from real ones, asked of two sites.

The sites differ in one row. `sites` makes them, `drafts` takes a request apart and puts it
together, `mutations` changes its parts, `episodes` draws the order, `attack` asks two nodes in
processes of their own and checks what they answer. The figures:
`python -m benchmarks.hostile_hub --messages 10000 --json`.
"""
