"""Is what left exactly what was charged? The auditor subtracts, and tests the rest."""
