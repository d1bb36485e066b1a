"""One data set shared out over simulated sites."""
