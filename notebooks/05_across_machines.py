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
# # A federation across three processes
#
# Two hospitals and a clinic hold their data in processes of their own, and a hub leads a run. Here all of it is on one
# machine, so that the hub asks the three *nodes* by their Unix sockets. On machines of their own Flower carries the
# same bytes, and nothing else changes: `docs/deploy.md`. Each part below says from whose side one looks.

# %%
import atexit
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

work = Path(tempfile.mkdtemp(prefix="panas-"))
plain = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "CLICOLOR_FORCE")}
plain |= {"TERM": "dumb", "PANAS_STATE": str(work / "state"), "OMP_NUM_THREADS": "1"}
names = ("north", "south", "clinic")
panas = [sys.executable, "-m", "panas_cli"]


def shell(command: str, hide: int = 0) -> None:
    print(f"$ {command[: len(command) - hide]}{' ...' if hide else ''}")
    words = [*panas, *command.split()[1:]]
    done = subprocess.run(words, cwd=work, env=plain, capture_output=True, text=True)
    errors = [x for x in done.stderr.splitlines(True) if x.startswith(("error", "warning"))]
    print("".join([done.stdout, *errors]).replace(f"{work}/", ""), end="")
    print(f"[exit code {done.returncode}]")


# %% [markdown]
# ## Whoever sets it up
#
# One command writes a folder for the hub and one for each site: keys, certificates, start scripts. Each folder goes to
# its administrator. Where nobody may hold the keys of several sites, as for a secure sum, each site makes its own by
# `panas deploy key --site DIR`, and `panas deploy init --keys DIR` takes their public halves.

# %%
digits = load_digits()
images = (digits.images * 15.9).astype(np.uint8)
order = np.random.default_rng(0).permutation(len(images))
for name, part in zip(("public", *names), np.array_split(order[:480], 4), strict=True):
    np.savez(work / f"{name}.npz", images=images[part], labels=digits.target[part])
shell("panas deploy init --sites north,south,clinic --out federation")
print(*sorted(p.name for p in (work / "federation/sites/north").iterdir()))

# %% [markdown]
# On one machine no port is needed: the hub's settings name the nodes' sockets instead of a Flower address.

# %%
hub = work / "federation/hub/hub.toml"
before, keys = hub.read_text().split("[keys]")
sockets = "".join(f'{name} = "../sites/{name}/node.sock"\n' for name in names)
_ = hub.write_text(f"{before.split('[flower]')[0]}[keys]{keys}\n[sockets]\n{sockets}")

# %% [markdown]
# ## Each site's owner
#
# An owner says where the data are and what they may cost in their whole life. The clinic is careful: no run may ask for
# more than epsilon 2.

# %%
for name in names:
    folder = f"federation/sites/{name}"
    shell(f"panas site init {folder} --name {name} --data {name}.npz --epsilon 8 --delta 1e-4")
clinic = work / "federation/sites/clinic/site.toml"
_ = clinic.write_text(f"epsilon_per_run = 2.0\n{clinic.read_text()}")

# %% [markdown]
# Then each starts its node: a process that owns the data, the ledger and the networks, and answers at a socket which
# its own user alone can open.

# %%
nodes = {}
for name in names:
    command = [*panas, "node", "--site", str(work / "federation/sites" / name)]
    with (work / f"{name}.err").open("w") as told:
        nodes[name] = subprocess.Popen(command, env=plain, stderr=told, start_new_session=True)
    atexit.register(nodes[name].kill)
until = time.monotonic() + 120
while not all((work / f"federation/sites/{n}/node.sock").exists() for n in names):
    assert time.monotonic() < until, "a node did not start"
    time.sleep(0.2)
for name in names:
    print((work / f"{name}.err").read_text().replace(f"{work}/", ""), end="")

# %% [markdown]
# ## The hub
#
# It leads a run over the sites' names. The settings at the end make it small enough for a notebook.

# %%
small = (
    " --set search.population=2 --set search.generations=0 --set search.epochs=1"
    " --set search.max_blocks=3 --set network.width=16 --set network.features=16"
    " --set training.student_steps=50 --set search.student_steps=50"
    " --set tuning.trials=0 --set federation.baselines=false --set privacy.network=stays"
)
run = "panas run --hub federation/hub --public-data public.npz --epsilon 4 --delta 1e-4"
shell(f"{run} --out first{small}", hide=len(small))

# %% [markdown]
# The clinic refused, so the run went on without it. What the hub holds is this: of each site that took part one
# noised release, and nothing else. There is no accuracy of a site, no count of its samples, no path.

# %%
server = work / "first/server"
for path in sorted(p for p in server.rglob("*") if p.is_file() and not p.name.startswith(".")):
    print(f"{path.stat().st_size:8,} bytes  {path.relative_to(server)}")
for site in json.loads((work / "first/summary.json").read_text())["sites"]:
    print(site["name"], "through:", site["through"], "epsilon:", site["epsilon_of_releases"])

# %% [markdown]
# ## The clinic
#
# The hub learnt a code. Why, stands in the clinic's own log, and its ledger was not touched.

# %%
for line in (work / "federation/sites/clinic/node.log").read_text().splitlines():
    entry = json.loads(line)
    print(entry["verb"], entry["run"], entry["code"], "-", entry["reason"])
shell("panas deploy status --site federation/sites/clinic")

# %% [markdown]
# ## North
#
# North was asked for one release and got one head. Its network and all that it predicts with stayed.

# %%
site = work / "federation/sites/north"
for line in (site / "node.log").read_text().splitlines():
    entry = json.loads(line)
    print(f"{entry['verb']:8} {entry['code']:6} {entry['seconds']:6.1f} s")
shell("panas deploy status --site federation/sites/north")
print(*sorted(str(p.relative_to(site / "runs/first")) for p in site.glob("runs/first/models/*")))

# %% [markdown]
# ## What crossed
#
# The release that north keeps is the release that the hub has, byte for byte; every answer was signed by the site's key,
# which the hub's settings name.

# %%
sent = (site / "runs/first/releases/round-001.safetensors").read_bytes()
(received,) = [p for p in server.rglob("*.safetensors") if p.read_bytes() == sent]
print(f"{len(sent):,} bytes: {received.relative_to(server)}")

# %%
for node in nodes.values():
    node.terminate()
print({name: node.wait(30) for name, node in nodes.items()})
