"""From releases and networks to labels and membership."""
