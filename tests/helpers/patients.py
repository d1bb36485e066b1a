"""Rows of a table of patients, and what a network sees of them."""

import torch

from panas.data.facts import Facts
from panas.data.files.columns import Column

COLUMNS = (
    Column(name="age", centre=50.0, reach=50.0, missing=True),
    Column(name="sex", kind="text", categories=("f", "m")),
)
TABLE = Facts(class_names=("ill", "well"), shape=(1, 3, 3), dtype="float32", columns=COLUMNS)
ROWS = [{"age": 75, "sex": "m"}, {"age": None, "sex": "f"}]
INPUTS = torch.zeros(2, 1, 3, 3)
INPUTS[:, 0, 0] = torch.tensor([[0.5, -1.0, -1.0], [0.0, 1.0, 1.0]])
INPUTS[:, 0, 1] = torch.tensor([[1.0, -1.0, 0.0], [-1.0, -1.0, 0.0]])
