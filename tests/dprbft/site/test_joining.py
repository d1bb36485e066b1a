"""Joining a run: consent, the lifetime budget, and samples that another ledger was charged for."""

import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from dprbft.config.files import build_config
from dprbft.config.schema import RunConfig
from dprbft.engines.inprocess import InProcess
from dprbft.paths import hello_file, ledger_file, read_sites, settings_file
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.stages import join_stage
from dprbft.run.view import RunView
from dprbft.site.data import declared
from dprbft.site.directory import SiteSettings, write_site
from dprbft.site.joining import join
from dprbft.site.results.seen import SeenSamples, remembering
from dprbft.site.site import open_site, same_ledger
from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.ledger.charge import Charge
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.unit import unit_name
from panas.runtime.errors import BadInput, BudgetExhausted


def images(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 4
    x = np.clip(rng.normal(60 + 30 * y[:, None, None], 20, (n, 8, 8)), 0, 255).astype(np.uint8)
    return x, y


def make_site(folder: Path, x: np.ndarray, y: np.ndarray, epsilon: float = 6.0) -> Path:
    folder.mkdir(parents=True)
    np.savez(folder / "data.npz", images=x, labels=y)
    settings = SiteSettings(
        name=folder.name, data=str(folder / "data.npz"), epsilon=epsilon, delta=1e-4
    )
    facts, _ = declared(folder, settings)
    write_site(folder, settings, facts=facts)
    return folder


def config_of(
    *folders: Path, epsilon: float = 4.0, delta: float = 1e-4, **privacy: object
) -> RunConfig:
    return build_config(
        {
            "federation": {
                "sites": [str(f) for f in folders],
                "clients": len(folders),
                "method": "dprbft",
                "warm_start": "none",
            },
            "network": {"width": 16},
            "search": {"widths": [16]},
            "privacy": {"epsilon": epsilon, "delta": delta, "search": "data-free", **privacy},
        }
    )


def changed(site: Path, **settings: object) -> None:
    """Another `site.toml`, as its owner writes it by hand."""
    record = tomllib.loads(settings_file(site).read_text())
    settings_file(site).write_text(tomli_w.dumps(record | settings))


def joined(run: Path, config: RunConfig) -> None:
    prepare(run, config, resume=False)
    with InProcess(read_sites(run)) as engine:
        join_stage(OpenRun(run, config, engine))


def spend(run: Path, noise: float = 1.3) -> Ledger:
    """Charge the first site's ledger as a release would, when a verb is served."""
    site = remembering(open_site(read_sites(run)[0]))
    charge = Charge(
        event=Gaussian(noise),
        phase="release",
        mechanism="moments",
        recipient="server",
        sensitivity=1.0,
        round=1,
    )
    with same_ledger(site):
        assert len(site.data)  # read, and remembered, before the charge
        with site.ledger.charge(charge):
            pass
    return site.ledger


def test_a_run_that_the_budget_for_life_does_not_hold_is_refused_before_data_are_read(
    tmp_path: Path,
):
    site = make_site(tmp_path / "north", *images(120))
    config = config_of(site)
    joined(tmp_path / "first", config)
    spend(tmp_path / "first")
    (site / "data.npz").unlink()  # whoever reads it now fails otherwise
    with pytest.raises(BudgetExhausted, match=r"north: .* left of 6 for life"):
        joined(tmp_path / "second", config_of(site, epsilon=5.5))
    assert not hello_file(read_sites(tmp_path / "second")[0].home).exists()


def test_a_second_run_of_other_settings_under_the_same_name_is_refused(tmp_path: Path):
    site = make_site(tmp_path / "north", *images(120))
    joined(tmp_path / "a" / "run", config_of(site, epsilon=1.0))
    with pytest.raises(BadInput, match="another name of the run"):
        joined(tmp_path / "b" / "run", config_of(site, epsilon=1.0, release_share=0.4))


def test_samples_that_another_ledger_was_charged_for_are_named_or_refused(tmp_path: Path):
    x, y = images(120)
    first = make_site(tmp_path / "north", x, y)
    config = config_of(first)
    joined(tmp_path / "one", config)
    spent = spend(tmp_path / "one").account().spent()
    some = np.random.default_rng(1).permutation(120)[:90]  # another file, shuffled, in part
    other = make_site(tmp_path / "east", x[some], y[some])
    joined(tmp_path / "two", config_of(other))
    seen = SeenSamples.read(read_sites(tmp_path / "two")[0].home)
    assert seen is not None
    assert (seen.samples, seen.overlap, seen.runs) == (90, 90, 1)
    assert seen.epsilon == pytest.approx(spent, rel=1e-3)
    assert seen.together > 4.0
    fresh = make_site(tmp_path / "south", *images(120, seed=9))
    joined(tmp_path / "three", config_of(fresh, strict=True))
    assert SeenSamples.read(read_sites(tmp_path / "three")[0].home) is None
    again = make_site(tmp_path / "west", x[some], y[some])
    with pytest.raises(BadInput, match=r"west: .*no other ledger was charged for"):
        joined(tmp_path / "four", config_of(again, strict=True))
    settings = tomllib.loads(settings_file(again).read_text()) | {"strict": True}
    settings_file(again).write_text(tomli_w.dumps(settings))
    with pytest.raises(BadInput, match=r"west: .*no other ledger was charged for"):
        joined(tmp_path / "five", config_of(again))


def test_samples_that_are_swapped_in_after_the_hello_are_noted_and_told(tmp_path: Path):
    mine, theirs = images(120), images(120, seed=9)
    site, run = make_site(tmp_path / "north", *mine), tmp_path / "run"
    joined(run, config_of(site))
    np.savez(site / "data.npz", images=theirs[0], labels=theirs[1])
    spend(run)  # the first charge: nothing has changed since an earlier one
    half = [x[:60] for x in mine]
    np.savez(site / "data.npz", images=half[0], labels=half[1])
    with pytest.warns(UserWarning, match=r"^north: .* 120 of 120 .* gone, and 60 of 60 are new"):
        spend(run, noise=20.0)
    both = [np.concatenate(pair) for pair in zip(mine, theirs, strict=True)]
    other = make_site(tmp_path / "east", *both)
    joined(tmp_path / "two", config_of(other))
    seen = SeenSamples.read(read_sites(tmp_path / "two")[0].home)
    assert seen is not None
    assert (seen.samples, seen.overlap) == (240, 180)


def test_a_strict_owner_s_samples_are_looked_back_at_again_when_they_were_swapped(tmp_path: Path):
    mine, theirs = images(120), images(120, seed=9)
    first = make_site(tmp_path / "north", *theirs)
    joined(tmp_path / "one", config_of(first))
    spend(tmp_path / "one")
    site = make_site(tmp_path / "east", *mine)
    changed(site, strict=True)
    joined(tmp_path / "two", config_of(site))
    np.savez(site / "data.npz", images=theirs[0], labels=theirs[1])
    with pytest.raises(BadInput, match="no other ledger was charged for"):
        spend(tmp_path / "two")
    assert Ledger(ledger_file(site)).account().entries == ()


def test_a_restored_backup_is_refused_at_the_hello_and_joins_with_its_charges(tmp_path: Path):
    site = make_site(tmp_path / "north", *images(120), epsilon=4.5)
    Ledger(ledger_file(site)).open_account(
        Budget(4.5, 1e-4), subsets=("train", "search"), unit=unit_name()
    )
    shutil.copytree(site, tmp_path / "backup")
    joined(tmp_path / "one", config_of(site, epsilon=4.0))
    spent = spend(tmp_path / "one").account().spent()
    shutil.rmtree(site)
    shutil.copytree(tmp_path / "backup", site)
    with pytest.raises(BadInput, match=r"lacks 1 charge: nothing can be spent; .* --restored"):
        joined(tmp_path / "two", config_of(site, epsilon=4.0))
    assert Ledger(ledger_file(site)).accept_restored() == 1
    assert Ledger(ledger_file(site)).account().spent() == spent > 2.7
    with pytest.raises(BudgetExhausted, match=r"left of 4\.5 for life"):
        joined(tmp_path / "three", config_of(site, epsilon=4.0))
    joined(tmp_path / "four", config_of(site, epsilon=0.2))


def test_what_the_owner_has_not_allowed_does_not_leave(tmp_path: Path):
    site = make_site(tmp_path / "north", *images(120))
    run = tmp_path / "run"
    config = config_of(site, allow_unprotected=True, release="raw_rows")
    prepare(run, config, resume=False)
    with pytest.raises(BadInput, match=r"which site.toml allows, got\s+.*sends raw_rows"):
        join(read_sites(run)[0], RunView(run, config).hello(0))
    assert not ledger_file(site).exists()


def test_a_histogram_that_goes_along_is_allowed_by_its_name(tmp_path: Path):
    site, run = make_site(tmp_path / "north", *images(120)), tmp_path / "run"
    given = tomllib.loads(settings_file(site).read_text())
    assert "label-histogram" in given["releases"]
    settings_file(site).write_text(tomli_w.dumps(given | {"releases": ["moments"]}))
    federation = {"sites": [str(site)], "clients": 1, "method": "joined"}
    config = build_config({"federation": federation, "privacy": {"epsilon": 4.0, "delta": 1e-4}})
    prepare(run, config, resume=False)
    with pytest.raises(BadInput, match=r"of moments alone.*sends moments and label-histogram"):
        join(read_sites(run)[0], RunView(run, config).hello(0))
    assert not ledger_file(site).exists()
    assert config_of(site).leaves == ("moments",)  # of method dprbft


@pytest.mark.parametrize(
    ("owner", "asks", "says"),
    [
        (
            {"delta": 1e-6, "epsilon_per_run": 1.0},
            {"epsilon": 1.0, "delta": 9e-3},
            r"delta 1e-06 at most, which site.toml names, got one of 0.009; lower privacy.delta",
        ),
        (
            {"delta": 1e-5, "epsilon_per_run": 0.7},
            {"epsilon": 1.0, "delta": 1e-8},
            r"epsilon 0.7 at most at delta 1e-05, .* of 0.709935, which is epsilon 1 at 1e-08; ",
        ),
    ],
)
def test_a_share_is_weighed_at_the_owner_s_delta_before_a_row_is_read(
    owner: dict[str, float], asks: dict[str, float], says: str, tmp_path: Path
):
    site, run = make_site(tmp_path / "north", *images(120)), tmp_path / "run"
    config = config_of(site, **asks)
    prepare(run, config, resume=False)
    changed(site, **owner)
    (site / "data.npz").unlink()  # whoever reads it fails otherwise
    with pytest.raises(BadInput, match=says):
        join(read_sites(run)[0], RunView(run, config).hello(0))
    assert not ledger_file(site).exists()


def test_a_share_that_is_less_at_the_owner_s_delta_is_taken(tmp_path: Path):
    site = make_site(tmp_path / "north", *images(120))
    changed(site, delta=1e-5, epsilon_per_run=0.8)
    run, config = tmp_path / "run", config_of(site, epsilon=1.0, delta=1e-8)
    joined(run, config)
    ledger = spend(run, noise=6.0)
    own = ledger.account().as_owned("run")
    assert own.budget.delta == 1e-5
    assert own.budget.epsilon == pytest.approx(0.7099, abs=1e-4)
    assert own.spent() == pytest.approx(epsilon([Gaussian(6.0)], 1e-5))


def test_sites_whose_owners_have_a_smaller_delta_are_asked_for_no_larger(tmp_path: Path):
    sites = [make_site(tmp_path / name, *images(120)) for name in ("north", "east")]
    changed(sites[1], delta=1e-6)
    given = {"federation": {"sites": [str(site) for site in sites], "clients": 2}}
    assert build_config(given).privacy.delta == 1e-6
    assert build_config(given | {"privacy": {"delta": 1e-3}}).privacy.delta == 1e-3
    changed(sites[1], delta=1e-4)
    assert build_config(given).privacy.delta == build_config().privacy.delta == 1e-5


def test_other_classes_or_another_shape_are_refused_by_name(tmp_path: Path):
    x, y = images(120)
    sites = [make_site(tmp_path / name, x, y) for name in ("north", "east")]
    small = make_site(tmp_path / "small", x[:, :6], y)
    with pytest.raises(BadInput, match=r"facts of small as of north, got shape \(1, 6, 8\)"):
        prepare(tmp_path / "run", config_of(*sites, small), resume=False)
    odd = make_site(tmp_path / "odd", x, y + 7)
    with pytest.raises(BadInput, match="classes of odd that another site has too"):
        prepare(tmp_path / "run", config_of(*sites, odd), resume=False)
    assert not (tmp_path / "run" / "sites.json").exists()
