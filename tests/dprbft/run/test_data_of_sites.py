"""Data that come split: each file becomes a site, if it fits the federation's facts."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dprbft.run.sites.plan import plan_sites, prepare_sites
from dprbft.run.view import RunView
from dprbft.site.data import declared
from dprbft.site.directory import SiteSettings, write_site
from panas.runtime.errors import BadInput


def archive(folder: Path, name: str, first: int = 0, **changes: object) -> str:
    """Distinct grey images of two classes."""
    x = np.random.default_rng(first).integers(0, 250, (60, 8, 8)).astype(np.uint8)
    np.savez(folder / name, **({"x": x, "y": np.arange(60) % 2} | changes))
    return str(folder / name)


@pytest.fixture
def split(tiny: Callable, tmp_path: Path) -> Callable:
    def plan(*files: str, **changes: object):
        given = {"federation__clients": len(files), "federation__client_data": list(files)}
        given |= {"data__limit": None, "privacy__delta": 1e-3} | changes
        return plan_sites(tmp_path / "run", tiny(**given)), tiny(**given)

    return plan


def test_files_become_sites_with_the_public_data_s_facts(split: Callable, tmp_path: Path):
    for i in range(40):
        place = tmp_path / "pictures" / ("train" if i < 30 else "test") / str(i % 2)
        place.mkdir(parents=True, exist_ok=True)
        Image.new("L", (11, 9 + i % 2), i).save(place / f"{i}.png")
    files = archive(tmp_path, "a.npz", 1), str(tmp_path / "pictures")
    public = archive(tmp_path, "public.npz", 2)
    _, config = split(*files, data__public_data=public, federation__classes=["well", "ill"])
    prepare_sites(tmp_path / "run", config)
    view = RunView(tmp_path / "run", config)
    assert view.facts.class_names == ("well", "ill")
    assert view.facts.shape == view.client(1).train.shape == (1, 8, 8)
    assert len(view.client(1).test) == 10  # the folder says which
    assert len(view.public) == 60


def test_public_data_with_a_sample_of_a_site_are_refused(split: Callable, tmp_path: Path):
    mine, other = archive(tmp_path, "a.npz", 1), archive(tmp_path, "b.npz", 2)
    with pytest.raises(BadInput, match="without any sample of b"):
        split(mine, other, data__public_data=archive(tmp_path, "public.npz", 2))


def test_one_file_for_two_clients_is_refused(split: Callable, tmp_path: Path):
    mine, other = archive(tmp_path, "a.npz", 1), archive(tmp_path, "b.npz", 2)
    with pytest.raises(BadInput, match=r"a\.npz twice, whose samples would be charged to two"):
        split(mine, other, f"{tmp_path}/./a.npz")


def test_declared_depth_and_ranges_make_the_facts(split: Callable, tmp_path: Path):
    deep = np.random.default_rng(0).integers(0, 4096, (60, 8, 8)).astype(np.uint16)
    files = [archive(tmp_path, f"{i}.npz", x=deep) for i in range(2)]
    with pytest.raises(BadInput, match=r"data\.bits"):
        split(*files)
    assert split(*files, data__bits=12)[0].facts.bits == 12
    tables = [str(tmp_path / f"{name}.csv") for name in "tu"]
    for table in tables:
        Path(table).write_text("age,y\n" + "".join(f"{i % 90},{i % 2}\n" for i in range(99)))
    plan, _ = split(*tables, data__ranges={"age": (0.0, 100.0)})
    assert (plan.facts.columns[0].centre, plan.facts.columns[0].reach) == (50.0, 50.0)


def test_what_reading_a_table_has_dropped_is_told_with_the_names(split: Callable, tmp_path: Path):
    rng = np.random.default_rng(0)
    for name, own in (("a", 0), ("b", 1), ("open", 2)):
        cells = rng.normal(size=(90, 2)) + own
        rows = [f"{i},{x:.6f},{y:.6f},{i % 2}" for i, (x, y) in enumerate(cells)]
        (tmp_path / f"{name}.csv").write_text("\n".join([",u,v,y", *rows]) + "\n")
    files = [str(tmp_path / f"{name}.csv") for name in ("a", "b")]
    dropped = "its first column has no name and was dropped"
    with pytest.warns(UserWarning, match=dropped) as told:
        split(*files, data__public_data=str(tmp_path / "open.csv"), data__label="y")
    lines = [str(w.message) for w in told]
    assert lines.count(f"a, b: {dropped}") == 1
    assert lines.count(f"public data: {dropped}") == 1
    settings = SiteSettings(name="a", data=files[0], label="y", epsilon=4.0, delta=1e-3)
    write_site(tmp_path / "site", settings)
    with pytest.warns(UserWarning, match=f"a: {dropped}"):
        declared(tmp_path / "site", settings)
