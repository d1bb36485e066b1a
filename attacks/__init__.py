"""The adversary: it sees what left the clients, and nothing else."""
