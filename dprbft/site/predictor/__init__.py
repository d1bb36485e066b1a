"""What a site does in method `joined`: one release, and its own predictor of what came back."""
