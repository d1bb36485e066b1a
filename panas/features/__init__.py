"""Fixed feature maps: the common representation that all sites compute alike."""
