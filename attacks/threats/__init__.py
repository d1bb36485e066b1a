"""What an attacker may see and know, and the blind controls beside every attack."""
