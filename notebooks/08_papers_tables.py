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
import shutil
import tempfile
import tomllib
from pathlib import Path

from IPython.display import Image, Markdown

from panas_cli import shell

experiments = Path("../experiments").resolve()
os.chdir(tempfile.mkdtemp())  # all files go here
_ = shutil.copytree(experiments, "experiments")
for file in sorted(Path("experiments").glob("*.toml")):
    print(f"{file.name:24} {tomllib.loads(file.read_text())['title']}")


# %% [markdown]
# ## DPFNAS, Table I
#
# Methods that need no common architecture. Column `paper` does what the publication does. Column `sound` covers by epsilon 8
# everything that leaves.


# %%
def table(folder: str, begins: str) -> Markdown:
    """The table of a comparison whose header begins so."""
    blocks = Path(folder, "compare.md").read_text().split("\n\n")
    return Markdown(next(block for block in blocks if block.startswith(f"| {begins}")))


# %%
shell("panas compare experiments/dpfnas-table-1.toml --size smoke --out table-1 > table-1.txt")
table("table-1", "published")

# %% [markdown]
# Published figures are of CIFAR-10 with ten sites and 300 rounds. The next table has all figures of our runs. In column
# `paper` epsilon is infinite: representations leave without protection.

# %%
table("table-1", "method | column | accuracy")

# %% [markdown]
# What accuracy costs in bytes: dashed lines are column `paper`.

# %%
Image("table-1/accuracy-bytes-cifar10.png")

# %% [markdown]
# ## DecNAS, Table 3
#
# DecNAS shrinks a network on the way and tries candidates at the sites. Dropping weak candidates early saves bytes.

# %%
shell("panas compare experiments/decnas-table-3.toml --size smoke --out table-3 > table-3.txt")
table("table-3", "published")

# %%
table("table-3", "method | column | up")

# %% [markdown]
# ## The full tables
#
# Size `cpu` takes hours on two cores, `full` has the sizes of the publication. Both need the data set in a folder.
#
# ```
# panas compare experiments/dpfnas-table-1.toml --size cpu  --data-root DIR --out runs/table-1
# panas compare experiments/dpfnas-table-1.toml --size full --data-root DIR --out runs/table-1-full
# ```
#
# `--resume` continues after a stop. Our results at size `cpu` are in [the documentation](../docs/results/papers.md).
