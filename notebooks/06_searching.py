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
# # Searching and tuning for one data set
#
# Three calls do the work of one site from Python: `panas.search` finds an architecture, `panas.tune` trains it by DP-SGD
# within a budget, `panas.load` reads either again. A fourth, `dprbft.simulate`, carries out a whole federation. Sizes are small
# here, so that every cell takes seconds; [docs/searching.md](../docs/searching.md) says what each setting changes.

# %%
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from IPython.display import Image
from sklearn.datasets import load_digits
from torch import nn

import dprbft
import panas

work = Path(tempfile.mkdtemp())
os.environ["PANAS_STATE"] = str(
    work / "state"
)  # what is known of samples that a ledger was charged for
digits = load_digits()
images, labels = (digits.images / 16).astype("float32"), digits.target
public, private, fresh = ((images[a:b], labels[a:b]) for a, b in ((0, 250), (250, 750), (750, 760)))

# %% [markdown]
# ## Search
#
# The search looks at public samples: it protects nothing. Limits bound the whole network, and no candidate is over
# them. `progress` hears of each generation, `on_candidate` of each candidate, from the first one on.

# %%
small = panas.EvolutionConfig(population=3, generations=2, offspring=3)


counted = []
found = panas.search(
    public,
    out=work / "search",
    config=small,
    max_parameters=12_000,
    max_latency_ms=20,
    progress=print,
    on_candidate=lambda done, at_most: counted.append(f"{done} of at most {at_most}"),
)
print("candidates:", ", ".join(counted[:3]), "...")
print(found.genome, found.cost)
print(f"validation {found.fitness:.3f}, test {found.accuracy:.3f}")

# %% [markdown]
# Both are shares of some 35 samples, and the first chose the network among all: it flatters. Every candidate is in
# `found.result`, and two pictures lie in the folder: the search, and the network.

# %%
Image(work / "search/history.png")

# %%
Image(work / "search/network.png")

# %% [markdown]
# ## Stopped, and on again
#
# Whatever stops a search, the same call goes on after the last generation that was through, and ends as if nothing had
# happened. Here an error stops a second search after its first generation.

# %%
heard = []


def stop(record) -> None:
    heard.append(record.generation)
    if len(heard) == 1:
        raise KeyboardInterrupt


for _ in range(2):
    try:
        panas.search(
            public, out=work / "stopped", config=small, max_parameters=12_000, progress=stop
        )
    except KeyboardInterrupt:
        print("stopped after generation", heard[-1])
print("generations, in the order in which they ran:", heard)

# %% [markdown]
# ## A custom block, and a fitness of one's own
#
# A block is a frozen value with a text and three methods. A fitness is any function from a genome to a number in [0, 1];
# this one asks how well a linear readout of the untrained network does.


# %%
@dataclass(frozen=True)
class Doubled:
    """A convolution that looks twice as far, by its dilation."""

    channels: int

    def __str__(self) -> str:
        return f"d{self.channels}"

    def build(self, in_channels: int) -> nn.Module:
        look = nn.Conv2d(in_channels, self.channels, 3, padding=2, dilation=2)
        return nn.Sequential(look, nn.ReLU())

    def out_channels(self, in_channels: int) -> int:
        return self.channels

    def out_side(self, side: int) -> int:
        return side


x, y = torch.from_numpy(public[0])[:, None] * 2 - 1, torch.from_numpy(public[1])


def fitness(genome: panas.Genome) -> float:
    generator = torch.Generator().manual_seed(0)
    bottom = panas.build_bottom(genome, shape=(1, 8, 8), width=64, generator=generator)
    with torch.no_grad():
        z = bottom(x)
    targets = nn.functional.one_hot(y[:180]).float()
    readout = torch.linalg.lstsq(z[:180], targets).solution
    return (z[180:] @ readout).argmax(1).eq(y[180:]).float().mean().item()


own = panas.search(public, config=small, blocks=(Doubled(16), Doubled(32)), fitness=fitness)
print(own.genome, f"fitness {own.fitness:.3f}, trained: test {own.accuracy:.3f}")

# %% [markdown]
# ## Tune, under a budget for the data's whole life
#
# The ledger belongs to the private samples. Trials rehearse on public ones, at no cost; then the private samples train
# once, after the ledger was charged. `strict=True` refuses samples that another ledger was charged for.

# %%
ledger = panas.Ledger(work / "mine/ledger.jsonl")
ledger.open_account(panas.Budget(8.0, 1e-5))
tuned = panas.tune(
    private,
    found.genome,
    public=public,
    out=work / "tuned",
    epsilon=4.0,
    ledger=ledger,
    strict=True,
    epochs=5,
    config=panas.TuningConfig(initial=3, trials=4),
    progress=print,
)
print(f"test {tuned.accuracy:.3f} at epsilon {tuned.epsilon:.2f}")
print(f"left of 8 for later: {ledger.account().left():.2f}")

# %%
Image(work / "tuned/trials.png")

# %% [markdown]
# More than 4 is left, because the ledger composes all noise that was drawn, and does not add up promises. Another
# ledger for the same samples would let them spend twice what anybody agreed to:

# %%
try:
    panas.tune(
        private, found.genome, public=public, out=work / "twice", epsilon=4.0, strict=True, epochs=5
    )
except panas.BadInput as refused:
    print(str(refused).replace(str(work), "."))

# %% [markdown]
# ## Use it
#
# The network is (epsilon, delta)-differentially private and may be shown; `tuned.accuracy`, on private test samples, is
# not covered.

# %%
network = panas.load(work / "tuned")
print(*network.predict(fresh[0]))
print(*fresh[1])

# %% [markdown]
# ## A whole federation, in one call
#
# `dprbft.simulate` shares a data set out, carries out what `panas run` does, and returns what `summary.json` holds;
# `panas config` lists the settings. The same call goes on with a run that was stopped.

# %%
np.savez(work / "mine.npz", images=(digits.images * 15.9).astype("uint8"), labels=labels)
settings = {
    "preset": "demo",
    "data.dataset": str(work / "mine.npz"),
    "data.limit": 600,
    "data.public_fraction": 0.1,
    "federation.clients": 3,
    "privacy.epsilon": 4.0,
    "search.generations": 0,
    "search.max_blocks": 3,
    "search.widths": (16, 32),
    "search.student_steps": 100,
    "training.student_steps": 200,
}
summary = dprbft.simulate(work / "run", settings)
for site in summary["clients"]:
    told = ", ".join(f"{step} {value:.3f}" for step, value in site["ladder"].items())
    print(f"{site['name']}: {site['genome']}; {told}; epsilon {site['epsilon']['spent']:.2f}")

# %% [markdown]
# Accuracies are the simulator's view, which no site would tell.
