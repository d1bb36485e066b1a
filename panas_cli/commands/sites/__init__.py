"""What the commands of a site's owner do."""
