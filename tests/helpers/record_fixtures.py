"""Records what this version writes, for later versions to read.

`python tests/helpers/record_fixtures.py` fills `tests/fixtures/wire/N/` with frames of a small run
over wire version N, and `tests/fixtures/files/V/` with a run directory and its sites, made by panas
V. What is there already stays as it is.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
DATA = "data.npz"
"""Of a site; it is not kept."""
KEPT = (".head", ".json", ".jsonl", ".toml")
"""Of a run directory: records, settings and ledgers."""


def record_wire(folder: Path) -> None:
    """Keep the hello, the request of a release, and the answers of one site to both."""
    from elsewhere import InThread, Recorded, opened
    from node_sites import hub_config, owned_site

    from dprbft.config.files import build_config, without_unread
    from dprbft.engines.frames import Answer
    from dprbft.run.directory import Ground
    from dprbft.run.stages import begin, exchange_stage

    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        sites = {n: owned_site(root / n, 60, seed) for seed, n in enumerate(("north", "south"))}
        given = hub_config(root, list(sites.values()), network="stays").model_dump()
        remote = {"sites": (), "remote": list(sites)}
        config = build_config(without_unread(given), {"federation": remote})
        wire = Recorded(InThread(sites))
        run = opened(root / "trial", config, wire)
        begin(run, Ground.of(run.folder))
        exchange_stage(run)
    folder.mkdir(parents=True)
    for request in wire.down:
        if (request.site, request.verb) in (("north", "hello"), ("north", "round")):
            (folder / f"{request.verb}.request").write_bytes(request.to_bytes())
    for site, content in wire.up:
        answer = Answer.from_bytes(content)
        if (site, answer.verb) in (("north", "hello"), ("north", "round")):
            (folder / f"{answer.verb}.answer").write_bytes(content)


def record_files(folder: Path) -> None:
    """Keep a run of two owners' sites, without samples, networks and pictures."""
    from node_sites import owned_site, write_pictures
    from tiny_options import tiny_options, without_overruled

    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        sites = [root / n for n in ("north", "south")]
        for seed, site in enumerate(sites):
            owned_site(site, 300, seed, data=DATA)
        public = write_pictures(root / DATA, 60, 99)
        words = ["run", "--out", root / "run", "--sites", *sites, "--public-data", public]
        words += tiny_options(data__limit=1000, data__public_limit=60, audit__samples=20)
        options = without_overruled([*words, "--method", "joined", "--clients", "2"])
        options += ["--epsilon", "4", "--delta", "1e-4"]
        subprocess.run([sys.executable, "-m", "panas_cli", *options], check=True)
        for path in sorted(root.rglob("*")):
            if path.suffix in KEPT and "candidates" not in path.parts:
                copy = folder / path.relative_to(root)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)


if __name__ == "__main__":
    sys.path.insert(0, str(FIXTURES.parents[1]))
    from dprbft.wire import WIRE, own_version

    steps = {FIXTURES / "wire" / str(WIRE): record_wire}
    steps[FIXTURES / "files" / own_version()] = record_files
    for place, record in steps.items():
        with tempfile.TemporaryDirectory() as state:
            os.environ["PANAS_STATE"] = state  # what this machine knows is not of the record
            if not place.exists():
                record(place)
