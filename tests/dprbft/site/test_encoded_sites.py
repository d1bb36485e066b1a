"""A site and its encoder: another file is refused by name, and embeddings stay at home."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_encoder import OUTPUTS, encoder_facts, write_onnx
from tiny_runs import joined_config, opened

from dprbft.config.files import build_config, merge
from dprbft.config.schema import RunConfig
from dprbft.engines.inprocess import InProcess
from dprbft.engines.node.public import _fits
from dprbft.messages import Hello
from dprbft.paths import (
    declared_file,
    embeddings_folder,
    ledger_file,
    public_file,
    read_sites,
    settings_file,
)
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.sites.plan import shared
from dprbft.run.stages import join_stage
from dprbft.run.view import RunView
from dprbft.simulation.federation import load_federation
from dprbft.site.data import declared, read_samples, write_samples
from dprbft.site.directory import SiteSettings, write_site
from dprbft.site.joining import approved
from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.features.encoders.files import load_encoder
from panas.runtime.errors import BadInput
from panas.runtime.store import read_json, read_tensors


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    return write_onnx(tmp_path / "tiny.onnx")


def config_with(encoder: Path, **sections: dict) -> RunConfig:
    return joined_config(network={"encoder": str(encoder)}, **sections)


def folder_of(path: Path, seed: int, n: int = 24, side: int = 20) -> Path:
    """Pictures of `side` x `side` in folders of two classes."""
    rng = np.random.default_rng(seed)
    for i in range(n):
        name = path / f"class{i % 2}" / f"{seed}-{i:03d}.png"
        name.parent.mkdir(parents=True, exist_ok=True)
        base = np.array([60, 180])[i % 2]
        x = np.clip(rng.normal(base, 40, (side, side, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(x).save(name)
    return path


def made(folder: Path, encoder: Path, seed: int) -> Path:
    """A site whose owner has named an encoder."""
    data = folder_of(folder / f"pictures-{seed}", seed)
    site = folder / f"site{seed}"
    settings = SiteSettings(
        name=site.name, data=str(data), epsilon=8.0, delta=1e-3, encoder=str(encoder)
    )
    facts, _ = declared(site, settings)
    write_site(site, settings, facts=facts)
    return site


def of_sites(*sites: Path, **sections: dict) -> RunConfig:
    federation = {"sites": [str(s) for s in sites], "clients": len(sites)}
    privacy = {"delta": 1e-3, "search": "data-free"}
    return joined_config(**merge({"federation": federation, "privacy": privacy}, sections))


@pytest.mark.parametrize(("has_encoder", "side"), [(True, 64), (False, 32)])
def test_networks_see_larger_pictures_beside_an_encoder(
    has_encoder: bool, side: int, tmp_path: Path, encoder: Path
) -> None:
    data = folder_of(tmp_path / "large", 0, n=80, side=70)
    given = {"network": {"encoder": str(encoder)}} if has_encoder else {}
    settings = SiteSettings(
        name="a",
        data=str(data),
        epsilon=8.0,
        delta=1e-3,
        encoder=str(encoder) if has_encoder else None,
    )
    assert declared(tmp_path / "a", settings)[0].shape == (3, side, side)
    simulated = joined_config(
        **merge(given, {"data": {"dataset": str(data), "public_fraction": 0.5}})
    )
    assert load_federation(simulated).facts.shape == (3, side, side)
    elsewhere = joined_config(**merge(given, {"data": {"public_data": str(data)}}))
    assert shared(elsewhere, {})[0].shape == (3, side, side)


def test_a_run_of_sites_with_another_encoder_is_refused_by_name(tmp_path: Path, encoder: Path):
    other = write_onnx(tmp_path / "other.onnx", seed=1)
    sites = made(tmp_path, encoder, 1), made(tmp_path, other, 2)
    with pytest.raises(BadInput, match=r"site2.*SHA-256"):
        prepare(tmp_path / "run", of_sites(*sites), resume=False)
    config = of_sites(sites[0], made(tmp_path, encoder, 3))
    prepare(tmp_path / "run", config, resume=False)
    third = tmp_path / "site3"
    text = settings_file(third).read_text()
    settings_file(third).write_text(text.replace(str(encoder), str(other)))
    run = tmp_path / "run"
    with InProcess(read_sites(run)) as engine, pytest.raises(BadInput, match="encoder"):
        join_stage(OpenRun(run, config, engine))
    assert not ledger_file(third).exists()
    assert not embeddings_folder(third).exists()


def test_a_hello_with_facts_of_another_encoder_is_refused(tmp_path: Path, encoder: Path):
    site = made(tmp_path, encoder, 1)
    config = of_sites(site, made(tmp_path, encoder, 2))
    prepare(tmp_path / "run", config, resume=False)
    view = RunView(tmp_path / "run", config)
    hello = Hello.from_bytes(view.hello(0))
    approved(view.sites[0], hello)
    facts = Facts.from_json(read_json(declared_file(site)))
    assert facts.encoder is not None
    for changed in (replace(facts.encoder, sha256="b" * 64), None):
        text = json.dumps(replace(facts, encoder=changed).to_json(), sort_keys=True)
        with pytest.raises(BadInput, match="encoder"):
            approved(view.sites[0], replace(hello, facts=text))
    settings_file(site).write_text(
        "\n".join(x for x in settings_file(site).read_text().splitlines() if "encoder" not in x)
    )
    with pytest.raises(BadInput, match="site1"):
        approved(view.sites[0], hello)


def test_embeddings_of_private_samples_stay_in_the_sites_folder(tmp_path: Path, encoder: Path):
    run = tmp_path / "run"
    config = config_with(encoder)
    site = opened(config, run)
    rows = site.rows(site.data.train)
    assert rows.z.norm(dim=1).max() <= 1
    assert site.data.train.embeddings is not None
    own = embeddings_folder(site.paths.folder)
    digests = {
        name: kept(folder)
        for name, folder in {"own": own, "common": embeddings_folder(run)}.items()
    }
    assert len(digests["own"]) > 50
    assert not digests["own"] & digests["common"]
    public = read_samples(public_file(run), 10)
    assert public.embeddings is not None
    assert public.embeddings.shape == (len(public), OUTPUTS)
    direct = load_encoder(str(encoder)).of(replace(public, embeddings=None))
    assert torch.equal(public.embeddings, direct)
    assert torch.equal(site.phi.of(public), site.phi(public.embeddings))


def kept(folder: Path) -> set[bytes]:
    files = folder.rglob("*.safetensors")
    return {bytes(row) for f in files for row in read_tensors(f)[0]["digests"].numpy()}


def test_pictures_of_a_folder_are_encoded_from_their_own_files(tmp_path: Path, encoder: Path):
    data = folder_of(tmp_path / "data", 0, n=60)
    public = folder_of(tmp_path / "public", 1)
    sections = {
        "data": {"dataset": str(data), "public_data": str(public), "image_size": 8},
        "privacy": {"delta": 1e-3},
    }
    site = opened(config_with(encoder, **sections), tmp_path / "run")
    train = site.data.train
    assert train.shape == (3, 8, 8)
    assert train.files is not None
    expected = load_encoder(str(encoder)).of(replace(train, embeddings=None))
    assert torch.equal(train.embeddings, expected)
    small = load_encoder(str(encoder)).of(replace(train, embeddings=None, files=None))
    assert not torch.allclose(small, expected, atol=1e-3)
    assert read_samples(public_file(tmp_path / "run"), 2).files is None


def test_files_and_embeddings_are_kept_with_samples(tmp_path: Path):
    samples = Samples(
        torch.zeros(2, 1, 4, 4, dtype=torch.uint8),
        torch.tensor([0, 1]),
        2,
        embeddings=torch.rand(2, 5),
        files=np.array(["/a b", ""]),
    )
    write_samples(tmp_path / "s.safetensors", samples)
    back = read_samples(tmp_path / "s.safetensors", 2)
    assert torch.equal(back.embeddings, samples.embeddings)
    assert back.files.tolist() == ["/a b", ""]


def test_an_encoder_is_for_pictures_and_for_method_joined(tmp_path: Path, encoder: Path):
    table = tmp_path / "t.csv"
    table.write_text(
        "a,b,label\n" + "".join(f"{i * 7 % 80},{i * i % 9},{i % 2}\n" for i in range(80))
    )
    with pytest.raises(BadInput, match="pictures alone"):
        prepare(tmp_path / "run", config_with(encoder, data={"dataset": str(table)}), resume=False)
    with pytest.raises(BadInput, match=r"network\.encoder, which it does not read"):
        build_config({"network": {"encoder": str(encoder)}, "federation": {"method": "dprbft"}})


def test_public_files_that_a_hub_sends_have_a_vector_each_and_name_no_file(tmp_path: Path):
    facts = replace(
        Facts(class_names=("a", "b"), shape=(1, 4, 4), dtype="uint8"), encoder=encoder_facts()
    )
    path, x = tmp_path / "public.safetensors", torch.zeros(3, 1, 4, 4, dtype=torch.uint8)
    samples = Samples(x, torch.tensor([0, 1, 1]), 2, embeddings=torch.rand(3, OUTPUTS))
    assert samples.embeddings is not None
    wrong = {
        "none": replace(samples, embeddings=None),
        "too long": replace(samples, embeddings=torch.rand(3, OUTPUTS + 1)),
        "not finite": replace(samples, embeddings=samples.embeddings * torch.nan),
        "huge": replace(samples, embeddings=samples.embeddings * 1e9),
        "a file": replace(samples, files=np.array(["/etc/passwd", "", ""])),
    }
    write_samples(path, samples)
    assert _fits(path, facts)
    assert not _fits(path, replace(facts, encoder=None))
    for bad in wrong.values():
        write_samples(path, bad)
        assert not _fits(path, facts)
