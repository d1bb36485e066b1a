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
# # Across machines
#
# A hub and three sites, each in processes of its own, talk through Flower over TLS. Here all are on one machine; on several
# the commands are the same ([deployment](../docs/how-to/deploy.md)). In the end you have seen a run from all sides: what the hub
# holds, what a site holds, and why one site refused.

# %%
import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from panas_cli import shell

os.chdir(tempfile.mkdtemp(prefix="panas-"))  # all files go here
os.environ["PANAS_STATE"] = str(Path("state").resolve())  # and so does the record of spent samples
os.environ["PANAS"] = str(Path(sys.executable).with_name("panas"))  # what start scripts call

# %%
digits = load_digits()
images = (digits.images * 15.9).astype(np.uint8)
order = np.random.default_rng(0).permutation(len(images))
names = ("public", "north", "south", "clinic")
for name, part in zip(names, np.array_split(order[:480], 4), strict=True):
    np.savez(f"{name}.npz", images=images[part], labels=digits.target[part])

# %% [markdown]
# ## Whoever sets it up
#
# One command writes a folder for the hub and for each site: keys, certificates, start scripts. Each folder goes to its
# administrator.

# %%
with socket.socket() as free:
    free.bind(("", 0))
    port = free.getsockname()[1]
shell(f"panas deploy init --sites north,south,clinic --port {port} --out federation")
shell("ls federation/hub federation/sites/north")

# %% [markdown]
# ## Each owner
#
# An owner says where the data are, and what they may cost in their whole life. The clinic is careful: no run may ask for
# more than epsilon 2.

# %%
budget = "--epsilon 8 --delta 1e-4"
shell(f"panas site init federation/sites/north --data north.npz {budget}")

# %%
shell(f"panas site init federation/sites/south --data south.npz {budget} > south.txt")
shell(
    f"panas site init federation/sites/clinic --data clinic.npz {budget} --epsilon-per-run 2 > clinic.txt"
)

# %% [markdown]
# ## Start
#
# On machines of their own, each administrator calls `start.sh`. A site connects to the hub, and opens no port.

# %%
processes = {}


def start(name: str, folder: str, ready: str) -> None:
    """Call a start script, and wait until its file says that it is ready."""
    with Path(f"{name}.log").open("w") as log:
        processes[name] = subprocess.Popen([f"{folder}/start.sh"], stdout=log, stderr=log)
    atexit.register(processes[name].terminate)
    while not Path(folder, ready).exists():
        assert processes[name].poll() is None, Path(f"{name}.log").read_text()
        time.sleep(0.2)


start("hub", "federation/hub", "flower/nodes.json")
for name in ("north", "south", "clinic"):
    start(name, f"federation/sites/{name}", "node.sock")

# %%
shell("panas deploy check --site federation/sites/north")

# %% [markdown]
# ## The hub leads a run
#
# The settings make it small enough for a notebook.

# %%
_ = Path("small.toml").write_text("""
search = { population = 2, generations = 0, epochs = 1, max_blocks = 3, student_steps = 50 }
network = { width = 16, features = 16 }
training.student_steps = 50
tuning.trials = 0
federation.baselines = false
privacy = { network = "stays", epsilon = 4.0, delta = 1e-4 }
""")
shell("panas run small.toml --hub federation/hub --public-data public.npz --out run")

# %% [markdown]
# The clinic refused, and the run went on without it.
#
# ## What the hub holds
#
# One noised release of each site that took part. No sample, no accuracy of a site, no path.

# %%
shell("panas deploy status --hub federation/hub --run run")
shell("find run/server -name '*.safetensors' | sort | xargs du -b")

# %% [markdown]
# ## What the clinic knows
#
# The hub got a code. The reason is in the clinic's own log, and its ledger was not charged.

# %%
last = json.loads(Path("federation/sites/clinic/node.log").read_text().splitlines()[-1])
print(f"{last['verb']} of {last['run']}: {last['code']}, {last['reason']}")
shell("panas deploy status --site federation/sites/clinic")

# %% [markdown]
# ## What north knows
#
# It was asked for one release and got one head. Its network and its predictor stayed.

# %%
for line in Path("federation/sites/north/node.log").read_text().splitlines():
    entry = json.loads(line)
    if entry["verb"] != "hello":
        print(f"{entry['verb']:8} {entry['code']:6} {entry['seconds']:6.1f} s")
shell("ls federation/sites/north/runs/run/models")

# %% [markdown]
# The release that north keeps is the one that the hub has, byte for byte.

# %%
sent = Path("federation/sites/north/runs/run/releases/round-001.safetensors").read_bytes()
(received,) = [p for p in Path("run/server").rglob("*.safetensors") if p.read_bytes() == sent]
print(f"{len(sent):,} bytes: {received}")

# %% [markdown]
# ## Stop
#
# Ctrl-C at a site or at the hub ends it, with all that it started.

# %%
for process in reversed(processes.values()):
    process.terminate()
print({name: process.wait(60) for name, process in processes.items()})
