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
# Four clients share the handwritten digits that come with scikit-learn, unevenly: each has its own mix of classes.
# Each evolves a small network for its own mix, tunes DP-SGD under its own budget, and trains with the others
# through a shared head. Then we attack what left them.
#
# `panas run --preset demo` does all of this from the shell. Here we take it stage by stage.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from attacks.audit.run import audit_run
from dprbft.config.files import build_config
from dprbft.engines.inprocess import InProcess
from dprbft.paths import ledger_file, places_of
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.events import Event
from dprbft.run.stages import search_stage, train_stage, tune_stage
from dprbft.run.summary import summarise
from dprbft.site.results.records import SearchRecord
from dprbft.site.results.scores import read_scores
from panas.privacy.ledger.account import totals
from panas.privacy.ledger.ledger import Ledger
from panas_cli.text.sentences import sentence

# %% [markdown]
# ## The federation
#
# A configuration is a preset with changes. `demo` is the sound preset at a size for a first look: everything that
# leaves a client is covered by its budget.
#
# Each client is a site: a directory with its samples, its budget, its ledger, and what it finds. A simulation makes
# its sites under the run's directory; `view` looks into all of them at once, as nobody in a real federation could.

# %%
config = build_config({"preset": "demo"}, {"privacy": {"epsilon": 8.0}, "seed": 1})
run = Path(tempfile.mkdtemp()) / "run"
prepare(run, config, resume=False)
print(
    *sorted(p.relative_to(run) for p in run.rglob("*") if p.is_file() and p.name[0] != "."),
    sep="\n",
)


def tell(event: Event) -> None:
    """Print what happens in words."""
    print(sentence(event))


engine = InProcess(places_of(run))
opened = OpenRun(run, config, engine, listener=tell)
view = opened.view

# %%
figure, axis = plt.subplots(figsize=(7, 2.5))
for site in view.places:
    counts = view.client(site.index).train.histogram().numpy()
    axis.bar(np.arange(10) + 0.2 * site.index - 0.3, counts, width=0.2, label=site.name)
axis.set(xlabel="class", ylabel="training samples", xticks=range(10))
axis.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
figure.tight_layout()

# %% [markdown]
# ## Search
#
# The search looks at public samples only, resampled to the class frequencies of each client. These frequencies are
# read with Gaussian noise on the counts, and that is all the search costs.

# %%
search_stage(opened)

# %%
figure, axis = plt.subplots(figsize=(7, 2.5))
for site in view.places:
    book = SearchRecord.read(site.home).result.records
    axis.plot(
        [g.generation for g in book],
        [g.best for g in book],
        "o-",
        label=site.name,
    )
axis.set(xlabel="generation", ylabel="best fitness", xticks=range(len(book)))
axis.legend()
figure.tight_layout()

# %% [markdown]
# ## Tune
#
# A Gaussian process and expected improvement choose learning rate, noise, clipping norm and batch size. A setting
# that the budget cannot pay for is never trained.

# %%
tune_stage(opened)

# %% [markdown]
# ## Train together
#
# Each round: train against the shared head by DP-SGD, release noised moments of the representations, fit a new
# shared head, send it back. Only the release crosses; a site keeps its accuracies to itself.

# %%
train_stage(opened)

# %%
for site in view.places:
    shown = ", ".join(f"{r.local:.2f} -> {r.shared:.2f}" for r in read_scores(site.home)[1:])
    print(f"{site.name}: before -> after the head's replacement, by round: {shown}")

# %% [markdown]
# ## What did it cost?
#
# Every row was on disk before the data was touched. The ledger belongs to the site, not to the run: `panas ledger`
# shows both.

# %%
for site in view.places:
    row = totals(Ledger(ledger_file(site.folder)).account())
    print(
        f"{site.name}: epsilon {row['spent']:.2f} of {row['budget']:.0f}; alone, the search "
        f"{row['search']:.2f}, the training {row['training']:.2f}, the releases {row['release']:.2f}"
    )

# %% [markdown]
# ## Attack it
#
# A ridge inverter and a convolutional decoder try to rebuild each client's training images from what it released,
# with the weights of its network in hand. R² is 1 for a perfect copy and 0 for the mean public image; the mean image
# of the right class is what anyone can guess who knows the class.

# %%
audit = audit_run(run)
for client in audit.clients:
    print(client.evidence)

# %% [markdown]
# ## The result

# %%
summary = summarise(run, config)
for client in summary["clients"]:
    a = client["accuracy"]
    print(f"{client['genome']}: {client['parameters']} parameters, accuracy {a['selected']:.3f}")
print(f"mean {summary['accuracy']['mean']:.3f}, std {summary['accuracy']['std']:.3f}")
assert all(c["epsilon"]["spent"] <= c["epsilon"]["budget"] for c in summary["clients"])
