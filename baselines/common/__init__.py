"""Parts that several methods share: options, plans, local training, averages and class means."""
