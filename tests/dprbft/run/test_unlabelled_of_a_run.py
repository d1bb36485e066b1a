"""Public samples without labels: a run keeps them, its hello names them, each site opens them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from dprbft.config.schema import RunConfig
from dprbft.messages import Hello
from dprbft.paths import map_file, unlabelled_file
from dprbft.run.directory import Ground, prepare
from dprbft.run.sites.plan import plan_sites
from dprbft.run.view import RunView
from dprbft.site.data import declared, write_samples
from dprbft.site.directory import SiteSettings, write_site
from dprbft.site.joining import join
from dprbft.site.site import Site, open_site
from panas.data.load import DataSettings, load
from panas.features.map import fit_map, write_map
from panas.runtime.errors import BadInput


def test_a_run_without_unlabelled_samples_says_so(
    tiny: Callable[..., RunConfig], make_site: Callable[..., Site], tmp_path: Path
):
    site, view = make_site(tiny(), tmp_path / "r"), RunView(tmp_path / "r", tiny())
    assert Hello.from_bytes(view.hello(0)).unlabelled == ""
    assert len(site.unlabelled) == len(view.unlabelled) == 0
    assert site.unlabelled.shape == site.facts.shape


def test_a_site_opens_the_unlabelled_samples_that_the_hello_names(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    run = tmp_path / "r"
    ground = Ground.of(run)
    prepare(run, tiny(), resume=False)
    view = RunView(run, tiny())
    some = view.public.take(range(7))
    write_samples(unlabelled_file(run), some)
    join(view.sites[0], view.hello(0))
    site = open_site(view.sites[0])
    assert Hello.from_bytes(view.hello(0)).unlabelled == str(unlabelled_file(run).resolve())
    assert torch.equal(site.unlabelled.x, some.x)
    assert torch.equal(view.unlabelled.x, some.x)
    assert len(site.public) == len(view.public) > 7
    ground.restore()
    assert not run.exists()


def archive(path: Path, n: int = 60, seed: int = 0, size: int = 8, **more: object) -> str:
    x = np.random.default_rng(seed).integers(0, 250, (n, size, size)).astype(np.uint8)
    np.savez(path, x=x, **more)
    return str(path)


def of_files(folder: Path, tiny: Callable[..., RunConfig], **data: object) -> RunConfig:
    """Two files of labelled images, which become sites; nothing else is known of them."""
    files = [archive(folder / f"{s}.npz", seed=s, y=np.arange(60) % 2) for s in (1, 2)]
    given = {f"data__{key}": value for key, value in data.items()}
    split = {"data__limit": None, "privacy__delta": 1e-3, "federation__method": "joined"}
    return tiny(federation__client_data=files, **split, **given)


def test_a_simulation_keeps_its_unlabelled_samples(tiny: Callable[..., RunConfig], tmp_path: Path):
    some = {"data__unlabelled_data": archive(tmp_path / "u.npz")}
    config = tiny(federation__method="joined", **some)
    prepare(tmp_path / "r", config, resume=False)
    view = RunView(tmp_path / "r", config)
    assert len(view.unlabelled) == 60
    assert (view.unlabelled.classes, view.unlabelled.y.tolist()) == (10, [0] * 60)
    assert len(view.public) == len(plan_sites(tmp_path / "other", tiny()).public)


def test_beside_sites_of_files_they_change_no_fact(tiny: Callable[..., RunConfig], tmp_path: Path):
    alone = plan_sites(tmp_path / "r", of_files(tmp_path, tiny))
    config = of_files(tmp_path, tiny, unlabelled_data=archive(tmp_path / "u.npz"))
    plan = plan_sites(tmp_path / "r", config)
    assert (len(plan.public), len(plan.unlabelled), plan.facts) == (0, 60, alone.facts)
    other = of_files(tmp_path, tiny, unlabelled_data=archive(tmp_path / "u.npz", size=7))
    with pytest.raises(BadInput, match="of shape"):
        plan_sites(tmp_path / "r", other)


def test_a_sample_of_a_site_among_them_is_refused(tiny: Callable[..., RunConfig], tmp_path: Path):
    same = archive(tmp_path / "u.npz", seed=2)
    config = of_files(tmp_path, tiny, unlabelled_data=same)
    with pytest.raises(BadInput, match="unlabelled data without any"):
        plan_sites(tmp_path / "r", config)
    mine = of_files(tmp_path, tiny, unlabelled_data=str(tmp_path / "2.npz"))
    with pytest.raises(BadInput, match="other than those of the sites"):
        plan_sites(tmp_path / "r", mine)
    x = load(DataSettings(), np.random.default_rng(0)).private.x[:, 0].numpy()
    np.savez(tmp_path / "some.npz", images=x)
    with pytest.raises(BadInput, match="without any sample of digits"):
        plan_sites(
            tmp_path / "r",
            tiny(federation__method="joined", data__unlabelled_data=str(tmp_path / "some.npz")),
        )


def test_a_site_refuses_its_own_samples_among_them(tiny: Callable[..., RunConfig], tmp_path: Path):
    run, config = tmp_path / "r", of_files(tmp_path, tiny)
    prepare(run, config, resume=False)
    view = RunView(run, config)
    write_samples(unlabelled_file(run), view.site(0).train.take(range(3)))
    with pytest.raises(BadInput, match="without any sample of 1"):
        join(view.sites[0], view.hello(0))
    join(view.sites[1], view.hello(1))


def test_beside_sites_of_owners_they_fit_what_is_declared(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    settings = SiteSettings(
        name="north",
        data=archive(tmp_path / "1.npz", seed=1, y=np.arange(60) % 2),
        epsilon=8.0,
        delta=1e-3,
    )
    write_site(tmp_path / "north", settings, facts=declared(tmp_path / "north", settings)[0])
    given = {"federation__sites": [str(tmp_path / "north")], "federation__clients": 1}
    given |= {"federation__method": "joined"}
    given |= {"privacy__delta": 1e-3, "data__unlabelled_data": archive(tmp_path / "u.npz")}
    prepare(tmp_path / "r", tiny(**given), resume=False)
    view = RunView(tmp_path / "r", tiny(**given))
    join(view.sites[0], view.hello(0))
    site = open_site(view.sites[0])
    assert (len(site.public), len(site.unlabelled), site.unlabelled.classes) == (0, 60, 2)


def test_they_shape_the_common_map_and_are_something_to_search_on(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    alone = {"federation__method": "joined", "data__public_fraction": 0.0}
    more = alone | {"data__unlabelled_data": archive(tmp_path / "u.npz")}
    configs = {"without": tiny(**alone), "with": tiny(**more)}
    assert [c.has_inputs for c in configs.values()] == [False, True]
    for name, config in configs.items():
        plan_sites(tmp_path / name, config).write(tmp_path / name)
    first, second = (map_file(tmp_path / name).read_bytes() for name in configs)
    assert first != second
    seen = RunView(tmp_path / "with", configs["with"])
    assert seen.feature_map
    d = seen.feature_map.width
    write_map(tmp_path / "again", fit_map(seen.facts, seen.unlabelled, d, labelled=False))
    assert (tmp_path / "again").read_bytes() == second
