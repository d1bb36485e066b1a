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
# # What joins, and what leaves
#
# Six sites join once. This notebook opens their messages. In the end you have a table of everything that left a site, to
# whom, and at which epsilon.

# %%
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import Image, Markdown
from sklearn.datasets import load_digits

import dprbft
import panas

os.chdir(tempfile.mkdtemp())  # all files go here
os.environ["PANAS_STATE"] = str(Path("state").resolve())  # and so does the record of spent samples

# %% [markdown]
# ## Six sites, and public samples
#
# Each site has 150 handwritten digits. Of 200 public ones 20 have labels.

# %%
digits = load_digits()
images, labels = (digits.images * 15.9).astype(np.uint8), digits.target
order = np.random.default_rng(0).permutation(len(images))
public, private, fresh = order[:200], order[200:1100], order[1200:1212]
labelled = np.concatenate([public[labels[public] == c][:2] for c in range(10)])
np.savez("labelled.npz", images=images[labelled], labels=labels[labelled])
np.savez("open.npz", images=images[np.setdiff1d(public, labelled)])
names = ("north", "east", "south", "west", "coast", "hills")
for name, part in zip(names, np.array_split(private, 6), strict=True):
    np.savez(f"{name}.npz", images=images[part], labels=labels[part])

# %%
settings = {
    "preset": "demo",
    "data.public_data": "labelled.npz",
    "data.unlabelled_data": "open.npz",
    "federation.clients": 6,
    "federation.client_data": [f"{name}.npz" for name in names],
    "privacy.epsilon": 8.0,
    "privacy.trust": "server",  # each release is seen, not the sum alone
    "search.generations": 0,
    "search.max_blocks": 3,
    "search.widths": [16, 32],
    "training.student_steps": 300,
}
summary = dprbft.simulate("run", settings)
run = dprbft.view_run("run")

# %% [markdown]
# ## Common coordinates
#
# All sites compute the same map of a sample, phi. Public samples alone have shaped it. A sample becomes a row of numbers
# of length 1.

# %%
phi = run.feature_map
rows = phi(torch.from_numpy(images[labelled[::4]][:, None]).float() / 127.5 - 1)
figure, axes = plt.subplots(2, 5, figsize=(9, 2.2), height_ratios=[2, 1])
for (top, bottom), image, u in zip(axes.T, images[labelled[::4]], rows, strict=True):
    top.imshow(image, cmap="gray_r")
    top.axis("off")
    bottom.bar(range(len(u)), u, width=1.0)
    bottom.set(xticks=[], yticks=[], ylim=(-0.6, 0.6))
axes[1, 0].set_ylabel("phi")
figure.tight_layout(pad=0.3)

# %% [markdown]
# Samples of one class get similar rows: below the inner products of 100 digits, sorted by class. That is why a linear
# classifier on phi is good enough to share.

# %%
some = order[1100:1200]
some = some[np.argsort(labels[some], kind="stable")]
u = phi(torch.from_numpy(images[some][:, None]).float() / 127.5 - 1)
figure, axis = plt.subplots(figsize=(3.6, 3.0))
picture = axis.imshow(u @ u.T, cmap="RdBu_r", vmin=-1, vmax=1)
starts = [int(np.argmax(labels[some] == c)) for c in range(10)]
axis.set(xticks=starts, yticks=starts, xticklabels=range(10), yticklabels=range(10))
axis.set(xlabel="class", ylabel="class")
figure.colorbar(picture, label="inner product")
figure.tight_layout()

# %% [markdown]
# ## The message of a site
#
# A site sends sums over its training samples: A of u uᵀ, B of u for each class, and how many samples each class has. Noise
# hides what any one sample adds. This is the message of `north`.

# %%
message = run.release(0)
for name, values in message.arrays.items():
    print(f"{name}: {tuple(values.shape)} numbers")
print(f"noise multiplier {message.noise_multiplier:.2f}; {len(message.to_bytes()):,} bytes in all")

# %% [markdown]
# Beside each message stands the sum without noise, which only the site knows. The noise hides one site; six sites have six
# times the signal, and the noise grows by √6 only.

# %%
train = [run.site(k).train for k in range(6)]
coordinates = [phi(t.inputs()) for t in train]
exact_a = [z.T @ z for z in coordinates]
exact_b = [torch.eye(10)[t.y].T @ z for t, z in zip(train, coordinates, strict=True)]
sent = [run.release(k).estimate(10) for k in range(6)]
pairs = {
    "north, exact": (exact_a[0], exact_b[0]),
    "north, as sent": (sent[0].A, sent[0].B),
    "six sites, exact": (sum(exact_a), sum(exact_b)),
    "six sites, as sent": (sum(s.A for s in sent), sum(s.B for s in sent)),
}
figure, axes = plt.subplots(2, 4, figsize=(10, 3.8), height_ratios=[3, 1])
for k, (title, matrices) in enumerate(pairs.items()):
    exact = list(pairs.values())[k - k % 2]
    for axis, values, reference in zip(axes[:, k], matrices, exact, strict=True):
        most = float(reference.abs().quantile(0.99))
        axis.imshow(values, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
        axis.set(xticks=[], yticks=[])
    axes[0, k].set_title(title, fontsize=10)
axes[0, 0].set_ylabel("A")
axes[1, 0].set_ylabel("B")
figure.tight_layout()

# %%
counts = {"exact": train[0].histogram(), "as sent": message.histogram.counts}
figure, axis = plt.subplots(figsize=(6, 2.2))
for k, (name, values) in enumerate(counts.items()):
    axis.bar(np.arange(10) + 0.4 * k - 0.2, values, width=0.4, label=name)
axis.set(xticks=range(10), xlabel="class", ylabel="samples of north")
axis.legend(frameon=False, ncols=2)
figure.tight_layout()

# %% [markdown]
# ## What comes back
#
# The server adds the messages and answers with one linear classifier, the shared head. Each site adapts it to its own
# samples by DP-SGD, and its network learns from the result. "Alone" is the best that a site reaches by itself at the same
# epsilon.

# %%
Image("run/ladder.png")

# %% [markdown]
# ## What leaves, in a table
#
# The ledger of `north` has every charge, made before its samples were read. Each epsilon is that of the charge by itself;
# together they cost less than their sum.

# %%
north = run.sites[0]
account = panas.Ledger(north.folder / "ledger.jsonl").account()
lines = ["| mechanism | for | who sees it | epsilon by itself |", "|---|---|---|---|"]
for entry in account.entries:
    charge = entry.charge
    alone = panas.epsilon([charge.event], account.budget.delta)
    lines.append(f"| {charge.mechanism} | {charge.phase} | {charge.recipient} | {alone:.2f} |")
lines.append(f"| **all** | | | **{account.spent():.2f}** of {account.budget.epsilon:g} |")
Markdown("\n".join(lines))

# %% [markdown]
# | what | leaves? | why |
# |---|---|---|
# | the message above | to the server, once | covered by epsilon |
# | the network | if the owner publishes it | covered by epsilon |
# | samples, predictor, accuracies | never | nothing covers predictor and accuracies |
#
# ## What stays: the predictor
#
# A site predicts with an average of all that it has. Validation samples set the weights, and nothing covers those. So the
# predictor stays.

# %%
predictor = panas.load(north.home / "models/predictor.safetensors")
shares = predictor.average.shares()
figure, axis = plt.subplots(figsize=(6, 0.4 + 0.25 * len(shares)))
axis.barh(list(shares), list(shares.values()))
axis.set(xlabel="weight in the average", xlim=(0, 1))
axis.invert_yaxis()
figure.tight_layout()

# %%
figure, axes = plt.subplots(1, len(fresh), figsize=(9, 1.2))
for axis, image, name in zip(axes, images[fresh], predictor.predict(images[fresh]), strict=True):
    axis.imshow(image, cmap="gray_r")
    axis.set_title(name)
    axis.axis("off")
