"""What a network may be: blocks, genomes, the search space, networks, cost and limits."""
