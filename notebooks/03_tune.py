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
# # Tune DP-SGD under a budget
#
# DP-SGD has settings that decide whether it learns at all: learning rate, clipping norm, batch size. `panas.tune` chooses
# them by a Gaussian process on public samples, at no cost in privacy. Then the private samples train once. In the end you
# have a network that is (epsilon, delta)-differentially private, and you see how it compares with fixed settings.

# %%
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from IPython.display import Image
from sklearn.datasets import load_digits

import panas

os.chdir(tempfile.mkdtemp())  # all files go here
os.environ["PANAS_STATE"] = str(Path("state").resolve())  # and so does the record of spent samples
digits = load_digits()
images, labels = (digits.images / 16).astype("float32"), digits.target
public, private = (images[:250], labels[:250]), (images[250:], labels[250:])

# %% [markdown]
# ## A ledger, for life
#
# The budget belongs to the samples. Each training is charged to their ledger before it reads them.

# %%
ledger = panas.Ledger("ledger.jsonl")
ledger.open_account(panas.Budget(10.0, 1e-5))

# %% [markdown]
# ## Tune
#
# Four trials are spread over the space. Then each trial is the one with the largest expected improvement. Noise follows
# from the budget: epsilon 2 here.

# %%
task = {"public": public, "epsilon": 2.0, "epochs": 10, "ledger": ledger}
genome = "c16k3-max-c32k3"
tuned = panas.tune(
    private,
    genome,
    out="tuned",
    config=panas.TuningConfig(initial=4, trials=12),
    progress=print,
    **task,
)
print(f"accuracy {tuned.accuracy:.3f} on test samples at epsilon {tuned.epsilon:.2f}")

# %%
Image("tuned/trials.png")

# %% [markdown]
# ## Does the Gaussian process help?
#
# The same trials without it: all twelve are spread over the space. A trial costs no privacy, so that this comparison is
# free until the private training.

# %%
spread = panas.tune(
    private,
    genome,
    out="spread",
    config=panas.TuningConfig(initial=12, trials=12),
    **task,
)
figure, axis = plt.subplots(figsize=(6, 2.6))
for name, outcome in (("Gaussian process", tuned), ("spread evenly", spread)):
    values = [trial.value or 0.0 for trial in outcome.result.trials]
    best = [max(values[: k + 1]) for k in range(len(values))]
    (line,) = axis.step(range(1, 13), best, where="post", label=f"{name}: best so far")
    axis.plot(range(1, 13), values, "o", ms=4, color=line.get_color(), alpha=0.5)
axis.set(xlabel="trial", ylabel="accuracy in rehearsal", xticks=range(1, 13))
axis.legend(frameon=False)
figure.tight_layout()

# %% [markdown]
# ## Against fixed settings
#
# Three settings that one might choose by hand, under the same budget. Each costs a private training, which the ledger
# adds up.

# %%
fixed = {"timid": (0.02, 0.1), "usual": (0.1, 1.0), "bold": (1.0, 4.0)}
outcomes = {"tuned": tuned}
for name, (rate, clip) in fixed.items():
    space = panas.TuningSpace(
        learning_rate=(rate, rate), clip=(clip, clip), noise_factor=(1, 1), batch_sizes=(64,)
    )
    one = panas.TuningConfig(initial=1, trials=1)
    outcomes[name] = panas.tune(private, genome, out=name, space=space, config=one, **task)

# %%
tests = len(private[0]) // 5
figure, axis = plt.subplots(figsize=(6, 2.4))
for at, (name, outcome) in enumerate(outcomes.items()):
    s, a = outcome.setting, outcome.accuracy
    error = 1.96 * (a * (1 - a) / tests) ** 0.5
    axis.barh(at, a, xerr=error, color="#0072b2" if name == "tuned" else "#999999")
    axis.text(
        0.01,
        at,
        f"learning rate {s.learning_rate:.2g}, clip {s.clip:.2g}",
        va="center",
        color="white",
    )
axis.set(yticks=range(len(outcomes)), yticklabels=outcomes, xlim=(0, 1), xlabel="test accuracy")
axis.invert_yaxis()
figure.tight_layout()

# %% [markdown]
# Bars have 95 % intervals of the test samples. What a fixed setting reaches is luck: nobody knows beforehand which is
# right.
#
# ## What is left
#
# Five trainings of epsilon 2 cost less than 10 together, since the ledger composes their noise.

# %%
account = ledger.account()
print(f"spent {account.spent():.2f} of {account.budget.epsilon:g}, left {account.left():.2f}")

# %% [markdown]
# A training that exceeds the rest is refused before it reads a sample.

# %%
try:
    panas.tune(private, genome, out="more", config=one, **{**task, "epsilon": 9.0})
except panas.BudgetExhausted as refusal:
    print(refusal)

# %% [markdown]
# ## Use it
#
# The network may be published; `tuned.accuracy`, on private test samples, is not covered.

# %%
network = panas.load("tuned")
print(network.notes["epsilon"], *network.predict(images[:10]))
