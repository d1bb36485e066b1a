"""Data that come split: each file becomes a site, if it fits the federation's facts."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dprbft.run.sites.plan import plan_sites
from dprbft.run.view import RunView
from dprbft.site.data import declared
from dprbft.site.directory import SiteSettings, write_site
from panas.data.load import load
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream
from panas.runtime.store import write_json


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
    plan_sites(tmp_path / "run", config).write(tmp_path / "run")
    view = RunView(tmp_path / "run", config)
    assert view.facts.class_names == ("well", "ill")
    assert view.facts.shape == view.site(1).train.shape == (1, 8, 8)
    assert len(view.site(1).test) == 10  # the folder says which
    assert len(view.public) == 60


def test_public_data_with_a_sample_of_a_site_are_refused(split: Callable, tmp_path: Path):
    mine, other = archive(tmp_path, "a.npz", 1), archive(tmp_path, "b.npz", 2)
    with pytest.raises(BadInput, match="without any sample of b"):
        split(mine, other, data__public_data=archive(tmp_path, "public.npz", 2))


def test_one_file_for_two_clients_is_refused(split: Callable, tmp_path: Path):
    mine, other = archive(tmp_path, "a.npz", 1), archive(tmp_path, "b.npz", 2)
    with pytest.raises(BadInput, match=r"a\.npz twice, whose samples would be charged to two"):
        split(mine, other, f"{tmp_path}/./a.npz")


def test_samples_of_two_sites_are_told_and_refused_by_a_strict_run(
    split: Callable, tmp_path: Path, recwarn: pytest.WarningsRecorder
):
    mine, other = archive(tmp_path, "a.npz", 1), archive(tmp_path, "b.npz", 2)
    split(mine, other, privacy__strict=True)
    assert not [w for w in recwarn if "also" in str(w.message)]
    with np.load(mine) as a, np.load(other) as b:
        for name, n in (("again", 60), ("one", 1)):  # so many of a's, the last first
            x, y = (np.concatenate([a[k][::-1][:n], b[k][: 60 - n]]) for k in "xy")
            np.savez(tmp_path / f"{name}.npz", x=x, y=y)
    for name, told in (("again", "60 of again's samples are"), ("one", "1 of one's sample is")):
        files = mine, str(tmp_path / f"{name}.npz")
        with pytest.warns(UserWarning, match=f"{told} also a's: .* both sites' budgets together"):
            split(*files)
        with pytest.raises(BadInput, match=f"of {name} that a has too"):
            split(*files, privacy__strict=True)


def test_equal_rows_of_few_columns_are_not_taken_for_one_person_s(
    split: Callable, tmp_path: Path, recwarn: pytest.WarningsRecorder
):
    tables = [tmp_path / f"{name}.csv" for name in "tu"]
    for table in tables:
        table.write_text("age,y\n" + "".join(f"{i % 30},{i % 2}\n" for i in range(99)))
    split(*map(str, tables), privacy__strict=True)
    assert not [w for w in recwarn if "also" in str(w.message)]


def test_a_limit_keeps_of_public_data_what_a_simulation_keeps(split: Callable, tmp_path: Path):
    files = [archive(tmp_path, f"{i}.npz", i) for i in (1, 2)]
    public = archive(tmp_path, "public.npz", 3, y=(np.arange(60) < 45).astype(int))
    given = {"data__public_data": public, "data__public_limit": 20}
    plan, config = split(*files, federation__classes=["1", "0"], **given)
    assert plan.facts.class_names == ("1", "0")
    assert plan.public.histogram().tolist() == [15, 5]
    source = load(
        replace(config.data.source, dataset=files[0]), stream(config.seed, "data"), ("1", "0")
    )
    assert torch.equal(plan.public.x, source.public.x)
    everything, _ = split(*files, **given | {"data__public_limit": 60})
    assert len(everything.public) == 60
    nothing, _ = split(*files, **given | {"data__public_limit": 0})
    assert (len(nothing.public), nothing.facts.classes) == (0, 2)  # these are known all the same


def test_a_limit_keeps_of_a_hub_s_public_data_too(tiny: Callable, split: Callable, tmp_path: Path):
    public = archive(tmp_path, "public.npz", 3)
    facts = tmp_path / "facts.json"
    own, _ = split(archive(tmp_path, "a.npz", 1), archive(tmp_path, "b.npz", 2))
    write_json(facts, own.facts.to_json())
    hub = {"federation__remote": ["a", "b"], "federation__clients": 2, "data__public_limit": 20}
    hub |= {"data__public_data": public, "data__limit": None}
    for known in ({}, {"federation__facts": str(facts)}):
        plan = plan_sites(tmp_path / "run", tiny(**hub, **known))
        assert plan.public.histogram().tolist() == [10, 10]


@pytest.mark.parametrize(
    ("header", "rows", "told"),
    [
        ("a,c,y", "{},1.5", "facts of u as of t, got none 'b'"),
        ("a,b,c,d,e,y", "{},1.5,2.5,3.5,4.5", "facts of u as of t, got another column, 'c'"),
        ("a,b,y", "{},red", "facts of u as of t, got column 'b' as text instead"),
    ],
)
def test_a_column_that_differs_is_named(
    split: Callable, tmp_path: Path, header: str, rows: str, told: str
):
    for name, head, row in (("t", "a,b,y", "{},0.5"), ("u", header, rows)):
        lines = [row.format(i * 7 % 50 + 0.25) + f",{i % 2}" for i in range(50)]
        (tmp_path / f"{name}.csv").write_text("\n".join([head, *lines]) + "\n")
    with pytest.raises(BadInput, match=told):
        split(str(tmp_path / "t.csv"), str(tmp_path / "u.csv"), data__label="y")


def test_a_table_among_images_is_named(split: Callable, tmp_path: Path):
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{i}.5,{i % 2}\n" for i in range(60)))
    files = archive(tmp_path, "a.npz", 1), str(tmp_path / "t.csv")
    for given, told in ((files, "facts of t as of a, got a table"), (files[::-1], "got images")):
        with pytest.raises(BadInput, match=told):
            split(*given)


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


def test_sites_of_files_read_them_as_the_run_says(split: Callable, tmp_path: Path):
    rng = np.random.default_rng(0)
    names = []
    for name, labels in (("a", ("Yes", "No")), ("b", ("yes", "No"))):
        cells = rng.normal(size=(60, 1))
        rows = [
            f"{1 + i % 12}/28/2020;{x:.4f};1.{100 + i},5;{labels[i % 2]}"
            for i, (x,) in enumerate(cells)
        ]
        (tmp_path / f"{name}.csv").write_text("\n".join(rows) + "\n")
        names.append(str(tmp_path / f"{name}.csv"))
    written = {"header": "no", "dates": "us", "numbers": "1.234,5", "delimiter": ";"}
    told = "'Yes' and 'yes' differ in case alone"
    with pytest.warns(UserWarning, match=told):
        _, config = split(
            *names, data__table=written | {"texts": ["2"]}, data__label="4", data__public_limit=0
        )
    run = tmp_path / "run"
    plan_sites(run, config).write(run)
    view = RunView(run, config)
    assert [c.kind for c in view.facts.columns] == ["date", "text", "number"]
    assert view.facts.class_names == ("No", "Yes", "yes")
    assert sum(map(len, (view.site(0), view.site(1)))) == 120


def test_public_rows_may_call_the_label_as_the_sites_do(tiny: Callable, tmp_path: Path):
    names = [tmp_path / f"{name}.csv" for name in ("a", "b", "public", "usual")]
    for i, path in enumerate(names):
        rows = [f"{i},{k / 8},{'ill' if k % 2 else 'well'}" for k in range(40)]
        header = f"n,x,{'class' if path.stem == 'usual' else 'state'}"
        path.write_text("\n".join([header, *rows]))
    for path in names[:2]:
        site = SiteSettings(name=path.stem, data=str(path), label="state", epsilon=8, delta=1e-3)
        facts, _ = declared(tmp_path / path.stem, site)
        write_site(tmp_path / path.stem, site, facts=facts)
    sites = [str(tmp_path / "a"), str(tmp_path / "b")]
    given = {"federation__clients": 2, "federation__sites": sites, "privacy__delta": 1e-3}
    with pytest.warns(UserWarning, match="no scale of 2 columns, as of 'n', .*panas site declare"):
        plan_sites(tmp_path / "run", tiny(**given))
    for public in names[2:]:
        plan = plan_sites(tmp_path / "run", tiny(data__public_data=str(public), **given))
        assert len(plan.public) == 40
        assert [c.name for c in plan.facts.columns] == ["n", "x"]
    changed = tiny(data__public_data=str(names[2]), data__label="mood", **given)
    with pytest.raises(BadInput, match=r"a column 'mood' in .*name the label column .--label"):
        plan_sites(tmp_path / "run", changed)


def test_a_table_without_a_public_scale_is_told_and_one_with_ranges_is_not(
    tiny: Callable, split: Callable, tmp_path: Path, recwarn: pytest.WarningsRecorder
):
    for i, name in enumerate("ab"):
        rows = [f"{100 * i + k},{'ill' if k % 2 else 'well'}" for k in range(40)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["weight,y", *rows]))
    files = [str(tmp_path / f"{name}.csv") for name in "ab"]
    ranges = {"data__ranges": {"weight": [0, 300]}}
    split(*files, **ranges)
    given = {"data__limit": None, "privacy__delta": 1e-3, "data__dataset": files[0]}
    plan_sites(tmp_path / "run", tiny(**given, **ranges))
    assert not [w for w in recwarn if "scale" in str(w.message)]
    told = "no scale of 1 column, as of 'weight', is public"
    with pytest.warns(UserWarning, match=told):
        split(*files)
    with pytest.warns(UserWarning, match=told):
        plan_sites(tmp_path / "run", tiny(**given))
