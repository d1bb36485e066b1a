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
import numpy as np
from IPython.display import Image
from sklearn.datasets import load_digits

import panas

os.chdir(tempfile.mkdtemp())  # all files go here
os.environ["PANAS_STATE"] = str(Path("state").resolve())  # and so does the record of spent samples
digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.target))
images, labels = (digits.images[order] / 16).astype("float32"), digits.target[order]
public, private = (images[:120], labels[:120]), (images[120:], labels[120:])

# %% [markdown]
# ## A ledger, for life
#
# The budget belongs to the samples. Each training is charged to their ledger before it reads them.

# %%
ledger = panas.Ledger("ledger.jsonl")
_ = ledger.open_account(panas.Budget(20.0, 1e-5))

# %% [markdown]
# ## Tune
#
# Four trials are spread over the space. Then each trial is the one with the largest expected improvement. Noise follows
# from the budget: epsilon 4 here.

# %%
task = {"public": public, "epsilon": 4.0, "epochs": 10, "ledger": ledger}
space = panas.TuningSpace(
    learning_rate=(0.02, 2.0), clip=(0.1, 4.0), noise_factor=(1, 1), batch_sizes=(64, 128, 256)
)
tuned = panas.tune(
    private,
    "c16k3-max-c32k3",
    out="tuned",
    space=space,
    config=panas.TuningConfig(initial=4, trials=12),
    progress=print,
    **task,
)
print(f"accuracy {tuned.accuracy:.3f} on test samples at epsilon {tuned.epsilon:.2f}")

# %%
Image("tuned/trials.png")

# %% [markdown]
# ## With and without the Gaussian process
#
# The same number of trials, all spread evenly. A rehearsal on few public samples is noisy, and twelve trials are few. So
# look at where the trials from the fifth on are: the Gaussian process wastes few of them.

# %%
spread = panas.tune(
    private,
    "c16k3-max-c32k3",
    out="spread",
    space=space,
    config=panas.TuningConfig(initial=12, trials=12),
    **task,
)
figure, axis = plt.subplots(figsize=(7, 2.6))
for name, outcome in (("Gaussian process", tuned), ("spread evenly", spread)):
    values = [trial.value or 0.0 for trial in outcome.result.trials]
    label = f"{name}: mean {np.mean(values[4:]):.2f} from trial 5 on"
    axis.plot(range(1, 13), values, "o-", ms=4, lw=0.6, label=label)
axis.axvline(4.5, color="#999999", ls=":")
axis.set(xlabel="trial", ylabel="accuracy in rehearsal", xticks=range(1, 13))
axis.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
figure.tight_layout()

# %% [markdown]
# ## Against fixed settings
#
# Four settings that one might choose by hand, under the same budget. With a learning rate of almost 0, the first is the
# network of public samples alone. Each costs a private training.

# %%
fixed = {
    "public samples alone": (1e-6, 0.1),
    "small steps": (0.02, 0.1),
    "medium steps": (0.2, 1.0),
    "large steps": (2.0, 4.0),
}
one = panas.TuningConfig(initial=1, trials=1)
outcomes = {"tuned": tuned}
for name, (rate, clip) in fixed.items():
    outcomes[name] = panas.tune(
        private,
        "c16k3-max-c32k3",
        out=name.replace(" ", "-"),
        space=panas.TuningSpace(
            learning_rate=(rate, rate), clip=(clip, clip), noise_factor=(1, 1), batch_sizes=(64,)
        ),
        config=one,
        **task,
    )

# %%
accuracies = np.array([outcome.accuracy for outcome in outcomes.values()])
errors = 1.96 * (accuracies * (1 - accuracies) / (len(private[0]) / 5)) ** 0.5
labels_of = [
    f"{name}: learning rate {o.setting.learning_rate:.2g}, clip {o.setting.clip:.2g}"
    for name, o in outcomes.items()
]
figure, axis = plt.subplots(figsize=(8, 2.4))
axis.barh(labels_of, accuracies, xerr=errors, color=["#0072b2"] + ["#bbbbbb"] * len(fixed))
axis.set(xlim=(0, 1), xlabel="test accuracy, with 95 % intervals of the test samples")
axis.invert_yaxis()
figure.tight_layout()

# %% [markdown]
# Bad settings undo what public samples have taught. Trials show which are bad, at no cost in privacy. Differences
# within the intervals may be luck.
#
# ## What is left
#
# Six trainings of epsilon 4 cost less than 24 together, since the ledger composes their noise.

# %%
account = ledger.account()
print(f"spent {account.spent():.2f} of {account.budget.epsilon:g}, left {account.left():.2f}")

# %% [markdown]
# A training that exceeds the rest is refused before it reads a sample.

# %%
try:
    panas.tune(private, "c16k3", out="more", config=one, **{**task, "epsilon": 19.0})
except panas.BudgetExhausted as refusal:
    print(str(refusal).replace(f"{Path.cwd()}/", ""))

# %% [markdown]
# ## Use it
#
# The network may be published; `tuned.accuracy`, on private test samples, is not covered.

# %%
network = panas.load("tuned")
print(*network.predict(images[:10]))
