"""The adversary: it sees what left the sites, and nothing else."""
