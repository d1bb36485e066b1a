"""One client alone: data, architecture search, hyperparameter search, training and privacy."""
