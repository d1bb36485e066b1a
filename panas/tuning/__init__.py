"""Bayesian optimisation of DP-SGD hyperparameters under a privacy budget."""
