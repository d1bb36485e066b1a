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
# Four sites share the handwritten digits that come with scikit-learn, unevenly: each has its own mix of classes.
# Each sends one noised message and gets one shared head back, which it adapts to its own samples under its own
# budget; and each evolves a small network for its own mix that learns all of that. Then we attack what left them.
#
# `panas run --preset demo --dataset digits` does all of this from the shell, and `dprbft.simulate` in one call from Python (`06_searching`). Here
# we take it stage by stage.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from attacks.audit.run import audit_run
from dprbft.config.files import build_config
from dprbft.engines.inprocess import InProcess
from dprbft.paths import ledger_file, read_sites
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.events import Event
from dprbft.run.stages import exchange_stage, search_stage, train_stage, tune_stage
from dprbft.run.summary import summarise
from dprbft.site.results.records import SearchRecord
from panas.privacy.ledger.account import totals
from panas.privacy.ledger.ledger import Ledger
from panas_cli.text.sentences import sentence

# %% [markdown]
# ## The federation
#
# A configuration is a preset with changes. `demo` is the sound preset at a size for a first look: everything that
# leaves a site is covered by its budget. Its networks are kept smaller still, and their training shorter.
#
# Each site has a directory with its samples, its budget, its ledger, and what it finds. A simulation makes
# its sites under the run's directory; `view` looks into all of them at once, as nobody in a real federation could.

# %%
small = {
    "search": {"max_blocks": 3, "widths": [16, 32]},
    "training": {"student_steps": 300},
}
config = build_config({"preset": "demo"}, small, {"privacy": {"epsilon": 8.0}, "seed": 1})
run = Path(tempfile.mkdtemp()) / "run"
prepare(run, config, resume=False)
print(
    *sorted(p.relative_to(run) for p in run.rglob("*") if p.is_file() and p.name[0] != "."),
    sep="\n",
)


def tell(event: Event) -> None:
    """Print what happens in words."""
    print(sentence(event))


engine = InProcess(read_sites(run))
opened = OpenRun(run, config, engine, listener=tell)
view = opened.view

# %%
figure, axis = plt.subplots(figsize=(7, 2.5))
for site in view.sites:
    counts = view.site(site.index).train.histogram().numpy()
    axis.bar(np.arange(10) + 0.2 * site.index - 0.3, counts, width=0.2, label=site.name)
axis.set(xlabel="class", ylabel="training samples", xticks=range(10))
axis.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
figure.tight_layout()

# %% [markdown]
# ## Join
#
# Each site charges its ledger, then sends a noised label histogram and noised sums of coordinates that all compute
# alike. The server adds them up, with 40 public samples, and answers with one head. That is all that ever leaves a
# site. `03_joining` looks into these messages.

# %%
exchange_stage(opened)

# %% [markdown]
# ## Search
#
# The search looks at public samples only. A network is the fitter, the more it agrees with the shared head there; of all
# that were tried, each site takes the one that does so best in its own class frequencies, as the noised histogram
# has them. That costs nothing more.

# %%
_ = search_stage(opened)

# %%
tried = SearchRecord.read(view.sites[0].home).result.history
figure, axis = plt.subplots(figsize=(7, 2.5))
axis.plot([1 + k for k in range(len(tried))], [c.fitness for c in tried], "o")
axis.set(xlabel="network tried", ylabel="agreement, all classes alike")
axis.set_xticks(range(1, 1 + len(tried)))
figure.tight_layout()

# %% [markdown]
# ## Tune
#
# Where at least 400 labelled samples are public, a Gaussian process and expected improvement choose the settings of
# DP-SGD, by rehearsals on them. Here are 40, so that settings follow from sample number and epsilon.

# %%
_ = tune_stage(opened)

# %% [markdown]
# ## Train
#
# Each site trains a linear correction of the shared head on its own samples by DP-SGD, with the rest of its budget.
# Its network learns from that on public samples. It predicts with an average of all that it has, weighed by its
# validation samples; those weights never leave it.

# %%
train_stage(opened)

# %% [markdown]
# ## What did it cost?
#
# Every row was on disk before the data was touched. The ledger belongs to the site, not to the run: `panas ledger`
# shows both.

# %%
for site in view.sites:
    row = totals(Ledger(ledger_file(site.folder)).account())
    print(
        f"{site.name}: epsilon {row['spent']:.2f} of {row['budget']:.0f}; by itself, the histogram "
        f"{row['search']:.2f}, the release {row['release']:.2f}, DP-SGD {row['training']:.2f}"
    )

# %% [markdown]
# ## Attack it
#
# A ridge inverter and a convolutional decoder try to rebuild each site's training images from what it released;
# the coordinates are public. R² is 1 for a perfect copy and 0 for the mean public image. The mean image of the right
# class is what anyone can guess who knows the class; with the site's test samples in it, on which nothing was
# trained, it is what the site's population looks like. A release leaks if an attack is clearly better than both.

# %%
audit = audit_run(run)
for site in audit.clients:
    print(f"{site.name}: {site.verdict}: {site.evidence}")

# %% [markdown]
# ## The result

# %%
summary = summarise(run, config)
for site in summary["clients"]:
    a = site["accuracy"]
    print(f"{site['genome']}: {site['parameters']} parameters, accuracy {a['selected']:.3f}")
print(f"mean {summary['accuracy']['mean']:.3f}, std {summary['accuracy']['std']:.3f}")
assert all(c["epsilon"]["spent"] <= c["epsilon"]["budget"] for c in summary["clients"])
