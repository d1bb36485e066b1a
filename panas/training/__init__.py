"""Fit and evaluate one network, with and without differential privacy."""
