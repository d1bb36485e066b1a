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
# # Comparing methods
#
# Four ways to learn together, on the same two sites of handwritten digits, with the same splits and the same budget: one
# network that is averaged (`fedavg`), class means and a common header (`fedgh`), a network that is shrunk on the way
# (`decnas`), and this project's own exchange of one noised message (`joined`). Each in column `sound`, where a budget of
# epsilon 8 covers everything that leaves, and, but for the last, in column `paper`, as published.
#
# `panas compare --methods fedavg,fedgh,decnas,joined --columns both` does the same from the shell. Here every method has
# few rounds: what follows shows how to read a comparison, not who wins. [docs/comparing.md](../docs/comparing.md) says more.

# %%
import tempfile
from pathlib import Path

from IPython.display import Image, Markdown

from dprbft.run.comparison.carry_out import Machine, Results, carry_out
from dprbft.run.comparison.pictures import curves
from dprbft.run.comparison.plan import Planned, Request, plan
from dprbft.run.comparison.table import table
from panas.plots.comparison import page
from panas_cli.text.comparison import as_markdown

# %% [markdown]
# ## Plan
#
# All runs are known, and checked, before one begins.

# %%
planned = plan(
    Request(
        size="smoke",
        methods=("fedavg", "fedgh", "decnas", "joined"),
        columns=("sound", "paper"),
        settings={"data": {"limit": 900}},
    )
)
for run in planned.runs:
    config = run.config
    print(
        f"{run.folder}: {config.federation.planned_rounds} rounds, epsilon {config.privacy.epsilon}"
    )

# %% [markdown]
# ## Run
#
# Each is an ordinary run, with a ledger at every site. What is finished is not repeated, should we be interrupted.

# %%
folder = Path(tempfile.mkdtemp())


def tell(run: Planned, results: Results) -> None:
    """Print what a run came to."""
    found = results.found[run]
    each = ", ".join(f"{a:.3f}" for a in found.accuracy)
    print(
        f"{run.folder}: accuracy of the sites {each}; epsilon {max(map(float, found.epsilon)):.2f}"
    )


results = carry_out(folder, planned, Machine(), tell)

# %% [markdown]
# ## One table
#
# Differences are in points, to the first method, over the same sites. Two sites of one seed say little: `--seeds 5` says
# more. Epsilon is what the ledgers have, infinite where anything left without protection.

# %%
found = table(results)
Markdown(as_markdown(found))

# %% [markdown]
# ## One page of plots
#
# The left panel asks how many rounds an accuracy takes, the middle one how many bytes, the right one how much of the
# budget. Dashed lines are column `paper`; on the right they stand at the edge, because nothing bounds what they tell.
# `joined` has a single point: it sends once.

# %%
Image(page(curves(found)))

# %% [markdown]
# A method's own figures are in the table of `compare.json`, too: of `decnas`, say, what its search has cost, and the
# networks along the way.

# %%
about = found["methods"]["decnas"]["about"]
for step in about["frontier"]:
    print(f"{step['macs']:,} MACs: accuracy {step['accuracy']:.3f} on validation samples")
for phase, cost in about["cost"].items():
    print(f"{phase}: {cost['macs']:,.0f} MACs, {cost['up']:,} bytes up, {cost['down']:,} down")
