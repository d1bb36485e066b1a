"""The sites of a run: every sample in one place only, the same place for everyone."""

import hashlib
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from dprbft.config.schema import RunConfig
from dprbft.simulation.federation import Federation, load_federation, make_sites
from dprbft.site.directory import read_site
from panas.data.samples import Samples
from panas.runtime.errors import BadInput
from panas.search_modes.mode import mode_names

N = 600
PARTS = ("search", "train", "validation", "test")


@pytest.fixture
def numbered(tmp_path: Path) -> str:
    """A data set whose images spell their own number, so that no two are equal."""
    x = np.zeros((N, 8, 8), np.uint8)
    x[:, 0, 0], x[:, 0, 1] = np.arange(N) // 256, np.arange(N) % 256
    y = np.random.default_rng(0).integers(0, 5, (N, 1))
    path = tmp_path / "numbered.npz"
    np.savez(path, train_images=x, train_labels=y, test_images=x[:0], test_labels=y[:0])
    return str(path)


def numbers(samples: Samples) -> list[int]:
    return [int(a) * 256 + int(b) for a, b in zip(*samples.x[:, 0, 0, :2].T, strict=True)]


def everything(federation: Federation) -> list[int]:
    parts = [getattr(c, p) for c in federation.clients for p in PARTS]
    return [i for part in (*parts, federation.public) for i in numbers(part)]


@pytest.mark.parametrize("partition", ["iid", "dirichlet", "classes"])
@pytest.mark.parametrize("search", mode_names())
def test_no_sample_is_in_two_places(
    numbered: str, tiny: Callable[..., RunConfig], partition: str, search: str
):
    config = tiny(
        data__dataset=numbered,
        data__public_fraction=0.25,
        data__limit=None,
        federation__clients=5,
        federation__partition=partition,
        federation__min_samples=30,
        privacy__search=search,
        privacy__allow_unprotected=True,
    )
    federation = load_federation(config)
    result = everything(federation)
    assert len(result) == len(set(result))
    if partition != "classes":  # there, a class that nobody owns is left out
        assert sorted(result) == list(range(N))
    for c in federation.clients:
        assert bool(len(c.search)) == (search == "unaccounted")
        assert min(len(c.train), len(c.validation), len(c.test)) > 0


def test_a_limit_bounds_the_private_samples(numbered: str, tiny: Callable[..., RunConfig]):
    federation = load_federation(
        tiny(data__dataset=numbered, data__limit=100, data__public_fraction=0.25)
    )
    assert sum(len(getattr(c, p)) for c in federation.clients for p in PARTS) == 100
    assert N / 6 < len(federation.public) < N / 3


@pytest.mark.thorough
def test_another_process_sees_the_same_clients(tiny: Callable[..., RunConfig]):
    config = tiny(seed=3)
    code = (
        "import sys, hashlib\n"
        "from dprbft.config.schema import RunConfig\n"
        "from dprbft.simulation.federation import load_federation\n"
        "f = load_federation(RunConfig.model_validate_json(sys.argv[1]))\n"
        "d = hashlib.sha256(b''.join(c.train.x.numpy().tobytes() for c in f.clients))\n"
        "print(d.hexdigest())"
    )
    here = subprocess.run(
        [sys.executable, "-c", code, config.model_dump_json()],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    f = load_federation(config)
    mine = hashlib.sha256(b"".join(c.train.x.numpy().tobytes() for c in f.clients))
    assert here.stdout.strip() == mine.hexdigest()


def test_another_seed_shares_the_data_out_anew(numbered: str, tiny: Callable[..., RunConfig]):
    a, b = (load_federation(tiny(data__dataset=numbered, seed=s)).clients[0] for s in (0, 1))
    assert numbers(a.train) != numbers(b.train)


def test_a_client_of_one_class_is_told_of(tiny: Callable[..., RunConfig]):
    config = tiny(federation__partition="classes", federation__classes_per_client=1, seed=11)
    with pytest.warns(UserWarning, match=r"client-00\d.* ha\w+ samples of one class only"):
        load_federation(config)


def test_many_clients_of_one_class_are_told_of_in_one_line(tiny: Callable[..., RunConfig]):
    config = tiny(
        federation__partition="classes",
        federation__classes_per_client=1,
        federation__clients=8,
        data__limit=None,
    )
    with pytest.warns(UserWarning, match="of one class only") as told:
        load_federation(config)
    (line,) = [str(w.message) for w in told if "one class" in str(w.message)]
    assert line.startswith("client-000, client-001")
    assert line.endswith(
        "client-005 and 2 others have samples of one class only; their accuracy says little"
    )


def test_clients_that_would_have_nothing_are_refused(tiny: Callable[..., RunConfig]):
    with pytest.raises(BadInput, match="samples"):
        load_federation(tiny(federation__clients=201, federation__partition="iid"))
    with pytest.raises(BadInput, match="train, validate and test client"):
        load_federation(tiny(federation__clients=100, federation__partition="iid"))
    with pytest.raises(BadInput, match="use fewer sites"):
        load_federation(tiny(federation__clients=30))


def test_delta_must_be_below_one_over_n_of_every_client(tiny: Callable[..., RunConfig]):
    smallest = max(len(c.train) for c in load_federation(tiny()).clients)
    load_federation(tiny(privacy__delta=0.99 / smallest))
    with pytest.raises(BadInput, match="delta below 1/n"):
        load_federation(tiny(privacy__delta=1 / smallest))


def test_one_client_and_many_clients(tiny: Callable[..., RunConfig]):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(load_federation(tiny(federation__clients=1)).clients) == 1
        many = tiny(federation__clients=25, data__limit=None)
        assert len(load_federation(many).clients) == 25


def test_a_column_may_say_which_client_has_a_row(tiny: Callable[..., RunConfig], tmp_path: Path):
    rows = [f"{k % 3 + k / 1000},ward {k % 3},{k // 3 % 2}" for k in range(120)]
    (tmp_path / "t.csv").write_text("a,hospital,y\n" + "\n".join(rows))
    data = {"data__dataset": str(tmp_path / "t.csv"), "data__client_column": "hospital"}
    data |= {"data__ranges": {"a": (0.0, 3.0)}, "data__limit": None}
    federation = load_federation(tiny(federation__clients=3, **data))
    for i, site in enumerate(federation.clients):
        values = torch.cat([getattr(site, p).x.flatten() for p in PARTS])
        assert len(values) == 40
        assert ((values + 1) * 1.5).floor().unique().tolist() == [i]
    with pytest.raises(BadInput, match="clients to 3"):
        load_federation(tiny(federation__clients=2, **data))


def patients(tmp_path: Path, tiny: Callable[..., RunConfig], **more: object) -> RunConfig:
    """Settings of a table of 40 patients with 3 rows each, which lie in two wards."""
    rows = [f"{k / 1000},p{k % 40},ward {k % 2 if k < 40 else 0},{k % 2}" for k in range(120)]
    (tmp_path / "t.csv").write_text("a,patient,ward,y\n" + "\n".join(rows))
    data = {"data__dataset": str(tmp_path / "t.csv"), "data__group": "patient"}
    data |= {"data__ranges": {"a": (0.0, 1.0)}, "data__limit": None, "federation__clients": 2}
    return tiny(privacy__delta=1e-3, **data, **more)


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "classes"])
def test_a_patient_is_at_one_client_and_is_the_unit_of_its_ledger(
    tiny: Callable[..., RunConfig], tmp_path: Path, kind: str
):
    config = patients(tmp_path, tiny, federation__partition=kind)
    federation = load_federation(config)
    first, second = ({int(g) for g in share.groups} for share in federation.shares)
    assert first
    assert second
    assert not first & second
    for place in make_sites(tmp_path / "run", config, federation):
        assert read_site(place.folder).group == "patient"


def test_a_patient_at_two_clients_is_told_of(tiny: Callable[..., RunConfig], tmp_path: Path):
    config = patients(tmp_path, tiny, data__client_column="ward")
    with pytest.warns(UserWarning, match="of such a group the epsilons add up"):
        load_federation(config)
