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
# # Your own sites
#
# Three hospitals have a file each. Each makes a *site*: a directory with a budget for the data's whole life and a
# ledger. Then they train together, twice, and ask what is left. All of it is shell commands; a small function shows
# them as you would type them.

# %%
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

work = Path(tempfile.mkdtemp())
plain = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "CLICOLOR_FORCE")}
plain |= {"TERM": "dumb", "PANAS_STATE": str(work / "state")}


def shell(command: str) -> None:
    print(f"$ {command}")
    words = [sys.executable, "-m", "panas_cli", *command.split()[1:]]
    done = subprocess.run(words, cwd=work, env=plain, capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines(True) if line.startswith("error")]
    print("".join([done.stdout, *errors]).replace(f"{work}/", ""), end="")
    print(f"[exit code {done.returncode}]")


# %% [markdown]
# ## Three files, and one that is public
#
# Here they are parts of the digits that come with scikit-learn. Yours can be an `.npz` with images and labels, a
# `.csv`, or a folder with a folder of pictures for each class.

# %%
digits = load_digits()
images = (digits.images * 15.9).astype(np.uint8)
order = np.random.default_rng(0).permutation(len(images))
public, rest = order[:60], order[60:1260]
np.savez(work / "public.npz", images=images[public], labels=digits.target[public])
for name, part in zip(("north", "east", "south"), np.array_split(rest, 3), strict=True):
    np.savez(work / f"{name}.npz", images=images[part], labels=digits.target[part])

# %% [markdown]
# ## A site for each
#
# The owner says what the data may cost in their whole life: epsilon 10 here, however many runs there will be. What
# `site init` prints under "declared" is public in a federation; everything else stays in the directory. With `--strict` a site
# also refuses runs whose samples were charged to another ledger before.

# %%
for name in ("north", "east", "south"):
    shell(f"panas site init sites/{name} --data {name}.npz --epsilon 10 --delta 1e-5")

# %% [markdown]
# ## The first run
#
# A run asks each site for a share of that budget, `--epsilon 4`. Nothing but one noised message a site crosses to the
# server; it keeps them under `runs/first/server/`. The settings at the end make it small enough for a notebook.

# %%
small = (
    "--preset demo --set search.generations=0 --set search.max_blocks=3 "
    "--set search.widths=[16,32] --set training.student_steps=200 --set audit.decoder_epochs=1 --workers 1"
)
shell(f"panas run --sites sites --public-data public.npz --epsilon 4 --out runs/first {small}")

# %%
shell("panas report runs/first --details")

# %% [markdown]
# The table "what each site must beat" compares with models that a site could have without a federation: of public
# samples alone (no budget spent), and of its own samples too (not private: it must stay there).
#
# ## What the ledger says
#
# `north` is shown its own ledger: what was spent, on what, and what a further run may ask for.

# %%
shell("panas ledger sites/north")

# %% [markdown]
# ## The second run, and a third that does not fit
#
# The budget belongs to the data, not to the run. The second run sees what the first has left, and a third that asks
# for more than that is refused (exit code 3) before any data are read. The models to beat
# would be those of the first run again, so both leave them out.

# %%
small += " --set federation.baselines=false"
shell(f"panas run --sites sites --public-data public.npz --epsilon 4 --out runs/second {small}")

# %%
shell(f"panas run --sites sites --public-data public.npz --epsilon 8 --out runs/third {small}")

# %%
shell("panas site show sites/north")

# %% [markdown]
# Two runs of epsilon 4 come to less than 8 together: the ledger composes all noise that was drawn, and does not add
# up promises.
