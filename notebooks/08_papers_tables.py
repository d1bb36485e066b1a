# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The papers' tables
#
# Each table of DPFNAS, DP-FNAS, FEATHERS and DecNAS that is rebuilt is a file in `experiments/`. `panas compare` runs it and
# puts the published figures beside ours. In the end you have two tables, and the commands for the full ones.
#
# These runs are small: two sites of the embedded digits, few rounds, one seed. They show how to read a table. They are no
# evidence about the published data sets.

# %%
import os
import tempfile
from pathlib import Path

from IPython.display import Markdown

os.environ["EXPERIMENTS"] = str(Path("../experiments").resolve())
os.chdir(tempfile.mkdtemp())  # all files go here

# %% language="bash"
# grep -h ^title $EXPERIMENTS/*.toml | cut -d'"' -f2

# %% [markdown]
# ## DPFNAS, Table I
#
# Methods that need no common architecture. Column `paper` does what the publication does; column `sound` covers everything
# that leaves by epsilon 8.

# %% language="bash"
# panas compare $EXPERIMENTS/dpfnas-table-1.toml --size smoke --out table-1 > table-1.txt 2> progress.txt

# %%
Markdown(Path("table-1/compare.md").read_text())

# %% [markdown]
# Epsilon is what the ledgers hold. In column `paper` it is infinite, since representations leave without protection.

# %%
sorted(p.name for p in Path("table-1").glob("*.png"))
