"""The network and predictor of a site, by whatever names them."""

from pathlib import Path

import pytest
from saved_models import site_at

from dprbft.paths import SitePaths, model_file, predictor_file, write_sites
from dprbft.run.models import models_of
from panas.runtime.errors import BadInput
from panas.runtime.store import write_tensors


@pytest.fixture
def run(tmp_path: Path) -> Path:
    sites = [site_at(tmp_path / name, name) for name in ("north", "east")]
    write_sites(tmp_path / "run", sites)
    return tmp_path / "run"


def test_a_run_and_a_site_name_both_files(run: Path):
    saved = models_of(run, "east")
    assert saved.name == "east"
    assert saved.file() == predictor_file(run.parent / "east/runs/trial")
    assert saved.file("network") == model_file(run.parent / "east/runs/trial")


@pytest.mark.parametrize("name", [None, "west"])
def test_a_site_that_is_not_named_or_unknown_is_refused_with_the_names(run: Path, name: str | None):
    with pytest.raises(BadInput, match=r"got .*; give one of north, east$"):
        models_of(run, name)


def test_the_only_site_of_a_run_needs_no_name(tmp_path: Path):
    write_sites(tmp_path / "run", [site_at(tmp_path / "north", "north")])
    assert models_of(tmp_path / "run").name == "north"


def test_a_file_and_a_folder_of_a_site_know_their_site(run: Path):
    home = run.parent / "north/runs/trial"
    for place in (home, model_file(home), predictor_file(home)):
        saved = models_of(place)
        assert (saved.name, saved.site and saved.site.home) == ("north", home)
    assert models_of(predictor_file(home)).file() == predictor_file(home)
    assert models_of(home).file() == predictor_file(home)
    with pytest.raises(BadInput, match=r"expected a network .* predictor alone"):
        models_of(predictor_file(home)).file("network")
    with pytest.raises(BadInput, match="leave --site out"):
        models_of(home, "north")


def test_files_elsewhere_have_no_site(tmp_path: Path):
    write_tensors(tmp_path / "found" / "network.safetensors", {}, {"network": "{}"})
    for place in (tmp_path / "found", tmp_path / "found" / "network.safetensors"):
        saved = models_of(place)
        assert saved.site is None
        assert saved.file() == tmp_path / "found" / "network.safetensors"


def test_a_place_without_models_is_refused(tmp_path: Path):
    (tmp_path / "x.npz").write_bytes(b"another file")
    for place in (tmp_path, tmp_path / "none", tmp_path / "x.npz"):
        with pytest.raises(BadInput, match="expected a run directory"):
            models_of(place)
    write_sites(tmp_path / "run", [SitePaths(0, "north", tmp_path / "north", "trial")])
    with pytest.raises(BadInput, match="train"):
        models_of(tmp_path / "run")


def test_a_network_under_its_older_name_is_found_until_there_is_a_newer_one(tmp_path: Path):
    paths = site_at(tmp_path / "north", "north", network=False)
    older = paths.home / "models/kept.safetensors"
    assert model_file(paths.home).name == "network.safetensors"
    write_tensors(older, {}, {"network": "{}"})
    write_sites(tmp_path / "run", [paths])
    assert models_of(tmp_path / "run").file("network") == older
    write_tensors(paths.home / "models/network.safetensors", {}, {"network": "{}"})
    assert models_of(tmp_path / "run").file("network").name == "network.safetensors"
