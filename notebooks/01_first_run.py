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
# # A first run
#
# Eight sites hold a few handwritten digits each, too few to learn ten classes alone. They join once, under differential
# privacy. In the end each site has a better predictor and a small network of its own. You have one page to show.

# %%
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image
from sklearn.datasets import load_digits

import dprbft
import panas
from panas_cli import shell

os.chdir(tempfile.mkdtemp())  # all files go here
os.environ["PANAS_STATE"] = str(Path("state").resolve())  # and so does the record of spent samples

# %% [markdown]
# ## Plan
#
# Before any sample is used, `panas plan` says what a run will do, how long it takes, and what it costs in privacy.

# %%
shell("panas plan")

# %% [markdown]
# ## Run
#
# This takes about half a minute on two cores. The last screen says whether it worked, what is promised, what the audit
# found, and what comes next.

# %%
shell("panas run --out first")

# %% [markdown]
# ## What each step brought
#
# The farther to the right, the better. A green line shows what a site gained by joining.

# %%
Image("first/ladder.png")

# %% [markdown]
# ## The network of one site
#
# A genetic algorithm has evolved it for the classes of this site.

# %%
site = dprbft.view_run("first").sites[0]
shell("panas report first --details > tables.txt")  # draws the networks, too
Image(site.home / "search/network.png")

# %% [markdown]
# ## Use it
#
# `panas predict` reads files, `panas.load` works from Python. Both scale new samples as in training.

# %%
digits = load_digits()
images = (digits.images * 15.9).astype("uint8")
np.savez("new.npz", images=images[-8:])

# %%
shell("panas predict first --site client-000 --input new.npz | cut -d, -f1-6")

# %%
predictor = panas.load(site.home / "models/predictor.safetensors")
figure, axes = plt.subplots(1, 8, figsize=(9, 1.4))
for axis, image, name in zip(axes, images[-8:], predictor.predict(images[-8:]), strict=True):
    axis.imshow(image, cmap="gray_r")
    axis.set_title(name)
    axis.axis("off")

# %% [markdown]
# ## Show it
#
# The report is one file with all figures and pictures. It opens in any browser, without a network.

# %%
shell("panas report first | tail -n 1")
shell("ls -sh first/report.html")

# %% [markdown]
# Next: [evolve a network for your own data](02_evolve.ipynb), or [set up your own sites](06_own_sites.ipynb).
