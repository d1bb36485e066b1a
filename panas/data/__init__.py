"""Data sets, by name or from files, and their splits: search, train, validation, test."""

from panas.data.dataset import Samples, Source, concat
from panas.data.sources import load
from panas.data.splits import Splits, resample_to, split, stratified

__all__ = ["Samples", "Source", "Splits", "concat", "load", "resample_to", "split", "stratified"]
