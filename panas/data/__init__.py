"""Data sets, by name or from files, and their splits: search, train, validation, test."""

from panas.data.load import Source, load
from panas.data.samples import Samples, concat
from panas.data.splits import Splits, resample_to, split, stratified

__all__ = ["Samples", "Source", "Splits", "concat", "load", "resample_to", "split", "stratified"]
