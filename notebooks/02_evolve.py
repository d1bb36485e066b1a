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
# # Evolve a network for your own data
#
# `panas.search` takes a data set and returns a small, trained network. In the end you have one that keeps to a size and a
# latency of your choice, and a picture of how it was found.
#
# A search protects nothing. Use public samples, or keep the result where the data are.

# %%
import os
import tempfile
from dataclasses import dataclass

import matplotlib.pyplot as plt
import torch
from IPython.display import Image
from sklearn.datasets import load_digits
from torch import nn

import panas

os.chdir(tempfile.mkdtemp())  # all files go here
digits = load_digits()
images, labels = (digits.images / 16).astype("float32"), digits.target
mine, fresh = (images[:500], labels[:500]), (images[500:510], labels[500:510])

# %% [markdown]
# ## Search
#
# A pair of arrays or a torch data set will do. No candidate exceeds a limit.

# %%
small = panas.EvolutionConfig(population=4, generations=4, offspring=4)
found = panas.search(
    mine, out="found", config=small, max_parameters=8_000, max_latency_ms=20, progress=print
)
print(f"accuracy {found.accuracy:.3f} on test samples; {found.cost}")

# %%
Image("found/history.png")

# %%
Image("found/network.png")

# %% [markdown]
# ## Use it

# %%
network = panas.load("found")
figure, axes = plt.subplots(1, 10, figsize=(9, 1.2))
for axis, image, name in zip(axes, fresh[0], network.predict(fresh[0]), strict=True):
    axis.imshow(image, cmap="gray_r")
    axis.set_title(name)
    axis.axis("off")

# %% [markdown]
# ## Stop, and continue
#
# A search that was stopped or killed continues with the same call. Here an error stops one after its first generation.

# %%
short = panas.EvolutionConfig(population=2, generations=2, offspring=1)
generations = []


def stop(record) -> None:
    generations.append(record.generation)
    if len(generations) == 1:
        raise KeyboardInterrupt


for _ in range(2):
    try:
        panas.search(mine, out="stopped", config=short, max_parameters=8_000, progress=stop)
    except KeyboardInterrupt:
        print("stopped after generation", generations[-1])
print("generations in the order in which they ran:", generations)

# %% [markdown]
# ## Add your own block
#
# A block is a frozen value with a text and three methods. The search mixes it with the others.


# %%
@dataclass(frozen=True)
class Dilated:
    """A convolution with holes: it sees 5 x 5 pixels with 9 weights."""

    channels: int

    def __str__(self) -> str:
        return f"d{self.channels}"

    def build(self, in_channels: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(in_channels, self.channels, 3, padding=2, dilation=2), nn.ReLU()
        )

    def out_channels(self, in_channels: int) -> int:
        return self.channels

    def out_side(self, side: int) -> int:
        return side


# %% [markdown]
# ## Set your own fitness
#
# Fitness is any function from a genome to a number in [0, 1]. This one trains nothing: it measures how well a linear
# readout of the untrained network classifies.

# %%
x, y = torch.from_numpy(images[:500])[:, None] * 2 - 1, torch.from_numpy(labels[:500])


def readout(genome: panas.Genome) -> float:
    generator = torch.Generator().manual_seed(0)
    bottom = panas.build_bottom(genome, shape=(1, 8, 8), width=64, generator=generator)
    with torch.no_grad():
        z = bottom(x)
    targets = nn.functional.one_hot(y[:350]).float()
    weights = torch.linalg.lstsq(z[:350], targets).solution
    return (z[350:] @ weights).argmax(1).eq(y[350:]).float().mean().item()


own = panas.search(
    mine,
    out="own",
    space=panas.SearchSpace(shape=(1, 8, 8), min_blocks=4, max_blocks=6, widths=(16, 32)),
    config=panas.EvolutionConfig(population=8, generations=8, offspring=8),
    blocks=(Dilated(16), Dilated(32)),
    fitness=readout,
    size="parameters",
    max_parameters=8_000,
)
print(f"{own.genome}: fitness {own.fitness:.3f}, trained {own.accuracy:.3f} on test samples")

# %% [markdown]
# ## Trade fitness for size
#
# With a size as second objective, the search keeps every network that no other one beats in both: the front on the right.

# %%
Image("own/history.png")

# %%
for genome, fitness, parameters in own.result.front:
    print(f"{parameters:8,.0f} parameters   fitness {fitness:.3f}   {genome}")

# %% [markdown]
# Next: [tune the training for a privacy budget](03_tune.ipynb).
