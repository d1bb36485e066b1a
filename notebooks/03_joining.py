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
# Six sites have some 150 handwritten digits each, too few to learn ten classes well under a privacy budget. Public are
# 20 labelled digits, and 180 without labels. We look at the coordinates that all sites share, at the one message that
# leaves each of them, with its noise and without, and at what a site makes of the answer.
#
# [docs/joining.md](../docs/joining.md) says the same in words, with figures on larger data.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import Image
from sklearn.datasets import load_digits

import panas
from dprbft.config.files import build_config
from dprbft.engines.inprocess import InProcess
from dprbft.messages import Release
from dprbft.paths import ledger_file, predictor_file, read_sites, sent_file
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.events import Event
from dprbft.run.stages import exchange_stage, search_stage, train_stage, tune_stage
from dprbft.run.summary import summarise
from panas.features.gabor import gabor_features
from panas.privacy.ledger.account import totals
from panas.privacy.ledger.ledger import Ledger
from panas.training.linear.ridge import exact_moments
from panas_cli.text.sentences import sentence

# %% [markdown]
# ## Six files, and public digits
#
# Each file becomes a site of its own: samples, split, budget, ledger. `panas run --client-data north.npz east.npz ...
# --public-data labelled.npz --unlabelled-data open.npz` would do all that follows.

# %%
work = Path(tempfile.mkdtemp())
digits = load_digits()
images = (digits.images * 15.9).astype(np.uint8)
order = np.random.default_rng(0).permutation(len(images))
public, private = order[:200], order[200:1100]
labelled = np.concatenate([public[digits.target[public] == c][:2] for c in range(10)])
np.savez(work / "labelled.npz", images=images[labelled], labels=digits.target[labelled])
np.savez(work / "open.npz", images=images[np.setdiff1d(public, labelled)])
names = ("north", "east", "south", "west", "coast", "hills")
for name, part in zip(names, np.array_split(private, len(names)), strict=True):
    np.savez(work / f"{name}.npz", images=images[part], labels=digits.target[part])

settings = {
    "data": {
        "public_data": str(work / "labelled.npz"),
        "unlabelled_data": str(work / "open.npz"),
    },
    "search": {"population": 4, "generations": 0, "max_blocks": 3, "widths": [16, 32]},
    "training": {"student_steps": 300},
    "federation": {
        "clients": len(names),
        "client_data": [str(work / f"{name}.npz") for name in names],
    },
    "privacy": {"epsilon": 8.0},
}
run, config = work / "run", build_config({"preset": "demo"}, settings)
prepare(run, config, resume=False)


def tell(event: Event) -> None:
    """Print what happens in words."""
    print(sentence(event))


engine = InProcess(read_sites(run))
opened = OpenRun(run, config, engine, listener=tell)
view = opened.view
classes = view.facts.classes

# %% [markdown]
# ## phi: the same coordinates everywhere
#
# phi filters an image by waves of eight directions and two lengths (Gabor filters), keeps how strongly each answers
# where, sets a small copy of the image beside that, and projects all of it on axes that public images have decided. A
# row of coordinates has length 1. No private sample has a part in it, and every site has the same bytes.

# %%
phi = view.feature_map
assert phi is not None
firsts = labelled[[0, 2, 8, 12, 14, 16]]
x = torch.from_numpy(images[firsts][:, None]).float() / 127.5 - 1
side = phi.bank.pooled
moduli = gabor_features(x, phi.bank, phi.filters)[:, : 16 * side[0] * side[1]]
moduli = moduli.reshape(len(x), 2, 8, *side)
angles = [f"{22.5 * k:g}°" for k in range(8)]
figure, axes = plt.subplots(len(x), 10, figsize=(9, 5.6), width_ratios=[1] * 9 + [4])
for row, image, answers, u in zip(axes, x, moduli, phi(x), strict=True):
    row[0].imshow(image[0], cmap="gray")
    for axis, answer in zip(row[1:9], answers[1], strict=True):
        axis.imshow(answer, cmap="magma", vmin=0, vmax=float(moduli.max()))
    row[9].bar(range(len(u)), u, width=1.0)
    row[9].set(ylim=(-0.6, 0.6))
    for axis in row:
        axis.set(xticks=[], yticks=[])
for axis, title in zip(axes[0], ("image", *angles, f"phi: {phi.width} coordinates"), strict=True):
    axis.set_title(title, fontsize=8)
figure.tight_layout(pad=0.4)

# %% [markdown]
# Left an image; then how strongly the longer waves of each direction answer, on 5 x 5 places; right its coordinates.
#
# Images of one class point in similar directions: below, inner products of phi for 60 digits, by class. (Their labels
# are looked at for this picture alone.)

# %%
some = order[1100:1160]
some = some[np.argsort(digits.target[some], kind="stable")]
u = phi(torch.from_numpy(images[some][:, None]).float() / 127.5 - 1)
figure, axis = plt.subplots(figsize=(3.6, 3.2))
picture = axis.imshow(u @ u.T, cmap="RdBu_r", vmin=-1, vmax=1)
starts = [int(np.argmax(digits.target[some] == c)) for c in range(classes)]
axis.set(xticks=starts, yticks=starts, xticklabels=range(classes), yticklabels=range(classes))
axis.set(xlabel="class", ylabel="class")
figure.colorbar(picture, label="inner product")
figure.tight_layout()

# %% [markdown]
# ## Join
#
# Each site charges its ledger, then sends one message: a noised label histogram, and noised sums over its training
# samples, A of u uᵀ and B of u for each class (u is phi of a sample). The server adds up what all sent, and answers
# with one head.

# %%
exchange_stage(opened)

# %%
messages = [
    Release.from_bytes(sent_file(p.home, 1).read_bytes(), width=phi.width, classes=classes)
    for p in view.sites
]
for place, message in zip(view.sites, messages, strict=True):
    size = sent_file(place.home, 1).stat().st_size
    parts = ", ".join(f"{k} of {tuple(v.shape)}" for k, v in sorted(message.arrays.items()))
    print(f"{place.name}: {size:,} bytes: {parts}, a histogram of {classes} counts")
print(f"noise multiplier of the sums {messages[0].noise_multiplier:.2f}")

# %% [markdown]
# ## What the noise does
#
# Beside what the first site has sent stands what it would have sent without noise. Nobody but the site, and this
# simulation, can compute that. A single site's sums drown in noise. The sums of all six, at the right, have six times the
# signal and only √6 times the noise; and a server that knows how much noise there is shrinks its head accordingly.

# %%
found = [m.estimate(classes) for m in messages]
exact = []
for k in range(len(names)):
    train = view.site(k).train
    exact.append(exact_moments(phi(train.inputs()), train.y, classes))
pairs = (
    ("first site, exact", exact[0].A, exact[0].B),
    ("first site, as sent", found[0].A, found[0].B),
    ("six sites, exact", sum(m.A for m in exact), sum(m.B for m in exact)),
    ("six sites, as sent", sum(m.A for m in found), sum(m.B for m in found)),
)
figure, axes = plt.subplots(2, 4, figsize=(10, 4.4), height_ratios=[3, 1])
for k, (title, A, B) in enumerate(pairs):
    reference = pairs[k - k % 2]  # a noised picture has the scale of the exact one
    for axis, values, whole in ((axes[0, k], A, reference[1]), (axes[1, k], B, reference[2])):
        most = float(whole.abs().quantile(0.99))
        axis.imshow(values, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
        axis.set(xticks=[], yticks=[])
    axes[0, k].set_title(title, fontsize=9)
axes[0, 0].set_ylabel(f"A, {phi.width} x {phi.width}")
axes[1, 0].set_ylabel(f"B, {classes} x {phi.width}")
figure.tight_layout()


# %%
def likeness(a: torch.Tensor, b: torch.Tensor) -> float:
    """Correlation of two arrays."""
    return float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1])


for what, one, other in (("one site", *pairs[:2]), ("six sites", *pairs[2:])):
    print(
        f"{what}: correlation of noised and exact sums: A {likeness(one[1], other[1]):.2f}, "
        f"B {likeness(one[2], other[2]):.2f}"
    )
counts = view.site(0).train.histogram().tolist()
noised = [round(c) for c in messages[0].histogram.counts.tolist()]
print(f"label histogram of the first site: {counts}\n                          as sent: {noised}")

# %% [markdown]
# ## Search, tune, train
#
# Each site now evolves the architecture of its *student*, a small network. A genome is fit if it learns to agree with
# the shared head on public images; no label is needed, and nothing is charged. Then the site trains a linear
# correction of the shared head (the residual) on its own samples by DP-SGD, with the rest of its budget, and teaches
# its student. Last, it weighs all that it has by its validation samples.

# %%
search_stage(opened)
_ = tune_stage(opened)

# %%
train_stage(opened)

# %% [markdown]
# ## What each step brought
#
# "Public" is the head of the 20 labelled samples. "Alone" is the strongest that we know for one site at the same
# epsilon: DP-SGD on phi with the whole budget, over that head and the site's noised label frequencies. "Joined" is the average that the site keeps. Accuracies are measured on the sites'
# own test samples, some 30 each: the simulator's view, and a coarse one. Noise is drawn anew each time, so that your
# figures will differ. Every run has this picture in its directory.

# %%
summary = summarise(run, config)
Image(run / "ladder.png")

# %%
for site in summary["clients"]:
    a = site["accuracy"]
    print(
        f"{site['name']}: student {site['genome']} of {site['parameters']:,} parameters, "
        f"accuracy {a['network']:.3f} by itself, {a['selected']:.3f} in the average"
    )

# %% [markdown]
# ## What it cost
#
# The ledger of each site holds three charges: histogram (under "search"), release, and DP-SGD.

# %%
for place in view.sites:
    row = totals(Ledger(ledger_file(place.folder)).account())
    print(
        f"{place.name}: epsilon {row['spent']:.2f} of {row['budget']:.0f}; by itself, the "
        f"histogram {row['search']:.2f}, the release {row['release']:.2f}, the residual "
        f"{row['training']:.2f}"
    )
    assert row["spent"] <= row["budget"]

# %% [markdown]
# ## Predict
#
# A site's predictor is one file. It stays with the site, because its weights were chosen on validation samples that
# nothing covers. The student alone (`models/network.safetensors`) may be shown to whomever the spent epsilon is shown to.

# %%
predictor = panas.load(predictor_file(view.sites[0].home))
shares = sorted(predictor.average.shares().items(), key=lambda item: -item[1])
print("weights:", ", ".join(f"{name} {share:.0%}" for name, share in shares))
fresh = order[1200:1212]
figure, axes = plt.subplots(1, len(fresh), figsize=(9, 1.2))
for axis, image, said in zip(axes, images[fresh], predictor.predict(images[fresh]), strict=True):
    axis.imshow(image, cmap="gray")
    axis.set(xticks=[], yticks=[])
    axis.set_title(said, fontsize=9)
figure.tight_layout()
