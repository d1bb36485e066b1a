"""Lower bounds on epsilon, from attacks."""
