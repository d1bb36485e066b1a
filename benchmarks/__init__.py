"""Figures for the documents: each module is one command that anyone can run."""
