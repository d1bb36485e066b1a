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
# Three hospitals have a file each. Each makes a *site*: a folder with a budget for the whole life of its data, and a ledger.
# They train together twice, and a third run is refused. In the end you know what each command shows and what is left.

# %%
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image
from sklearn.datasets import load_digits

import panas
from panas_cli import shell

os.chdir(tempfile.mkdtemp())  # all files go here
os.environ["PANAS_STATE"] = str(Path("state").resolve())  # and so does the record of spent samples

# %% [markdown]
# ## The data
#
# Here they are 200 digits each. Public are 30 with labels, and 370 without. Yours can be an `.npz`, a `.csv`, or a folder of pictures for each
# class.

# %%
digits = load_digits()
images = (digits.images * 15.9).astype(np.uint8)
order = np.random.default_rng(0).permutation(len(images))
parts = dict(zip(("north", "east", "south"), np.array_split(order[400:1000], 3), strict=True))
for name, part in {"public": order[:30], "new": order[1000:1004], **parts}.items():
    np.savez(f"{name}.npz", images=images[part], labels=digits.target[part])
np.savez("unlabelled.npz", images=images[order[30:400]])

# %% [markdown]
# ## A site for each
#
# The owner sets what the data may cost in their whole life: epsilon 8. What `site init` prints under "declared" is public
# in a federation. Everything else stays in the folder.

# %%
shell("panas site init sites/north --data north.npz --epsilon 8 --delta 1e-5")

# %%
shell("panas site init sites/east --data east.npz --epsilon 8 --delta 1e-5 > east.txt")
shell("panas site init sites/south --data south.npz --epsilon 8 --delta 1e-5 > south.txt")

# %% [markdown]
# ## The first run
#
# A run asks each site for a share of its budget, here epsilon 3. The server sees only the sum of the three messages, so that
# the noise of one suffices. The other settings make the run small enough for a notebook; leave them out for your own data.

# %%
small = """
preset = "demo"
privacy.trust = "secure-sum"
federation.secure_minimum = 3
search = { generations = 0, max_blocks = 3, widths = [16, 32] }
training.student_steps = 200
audit.decoder_epochs = 1
"""
_ = Path("small.toml").write_text(small)

# %%
public = "--public-data public.npz --unlabelled-data unlabelled.npz"
shell(f"panas run small.toml --sites sites {public} --epsilon 3 --out runs/first")

# %%
Image("runs/first/ladder.png")

# %% [markdown]
# ## What the ledger says
#
# The owner of `north` sees what was spent, on what, and what a further run may ask for. Without
# `sed`, the command also lists what no epsilon covers.

# %%
shell("panas ledger sites/north | sed '/^not covered/,$d'")

# %% [markdown]
# ## A second run, and a refusal
#
# The budget belongs to the data, not to the run. The second run sees what the first has left. The third asks for more than
# that: it is refused, with exit code 3, before any sample is read.

# %%
shell(f"panas run small.toml --sites sites {public} --epsilon 3 --out runs/second | tail -n 6")

# %%
shell(f"panas run small.toml --sites sites {public} --epsilon 7.5 --out runs/third", code=3)

# %% [markdown]
# Two runs of epsilon 3 cost less than 6 together, since the ledger composes all noise that was drawn.

# %%
account = panas.Ledger("sites/north/ledger.jsonl").account()
figure, axis = plt.subplots(figsize=(7, 1.4))
start = 0.0
for names in (("first",), ("first", "second")):
    events = [entry.event for entry in account.entries if entry.charge.run in names]
    spent = panas.epsilon(events, account.budget.delta)
    axis.barh(0, spent - start, left=start, label=f"runs/{names[-1]}: up to {spent:.2f}")
    start = spent
axis.barh(0, account.budget.epsilon - start, left=start, color="#eeeeee", label="not spent")
axis.set(yticks=[], xlabel="epsilon of north's data")
axis.legend(ncols=3, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0))
figure.tight_layout()

# %% [markdown]
# ## Use the result
#
# Each site has its predictor in its own folder.

# %%
shell("panas predict runs/second --site north --input new.npz | cut -d, -f1-6")
