"""What a site finds, as files in its own folder."""
