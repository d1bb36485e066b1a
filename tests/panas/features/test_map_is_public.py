"""From files to the map: it stays the same bytes whatever private samples hold."""

from pathlib import Path

import numpy as np
import pytest

from panas.data.load import DataSettings, load
from panas.features.map import fit_map, write_map
from panas.runtime.seeds import stream


def images(path: Path, seed: int, *, faint: bool = False) -> None:
    rng = stream(seed, "test")
    x = rng.integers(0, 3 if faint else 256, (60, 9, 9), dtype=np.uint8)
    np.savez(path, images=x, labels=rng.permutation(np.arange(60) % 3))


def table(path: Path, seed: int, *, wild: bool = False) -> None:
    rng, rows = stream(seed, "test"), ["age,ward,day,dose,label"]
    for i in range(120):
        age = rng.normal(50, 10) * (1e9 if wild else 1)
        ward = rng.choice(("other", "") if wild else ("north", "south"))
        day = f"{1900 if wild else 2024}-01-{rng.integers(1, 28):02d}"
        dose = "" if rng.random() < (0.9 if wild else 0.1) else f"{rng.random():.4f}"
        label = i % 2 if wild else rng.random() < 0.5
        rows.append(f"{age:.5f},{ward},{day},{dose},{'ill' if label else 'well'}")
    path.write_text("\n".join(rows) + "\n")


def map_bytes(private: Path, public: Path, tmp_path: Path, *, labelled: bool = True) -> bytes:
    settings = DataSettings(dataset=str(private), public_data=str(public), label="label")
    if private.suffix == ".npz":
        settings = DataSettings(dataset=str(private), public_data=str(public))
    source = load(settings, stream(0, "test"))
    path = tmp_path / "map.safetensors"
    write_map(path, fit_map(source.facts, source.public, 16, labelled=labelled))
    return path.read_bytes()


@pytest.mark.thorough
@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("suffix", [".npz", ".csv"])
@pytest.mark.filterwarnings("ignore")
def test_other_private_samples_give_the_same_map(tmp_path: Path, suffix: str, labelled: bool):
    def file(name: str, seed: int, **how: bool) -> Path:
        path = tmp_path / f"{name}{suffix}"
        (images if suffix == ".npz" else table)(path, seed, **how)
        return path

    public, first, second = file("public", 0), file("first", 1), file("second", 2)
    far = file("far", 3, **{"faint" if suffix == ".npz" else "wild": True})
    made = [map_bytes(p, public, tmp_path, labelled=labelled) for p in (first, second, far)]
    assert made[0] == made[1] == made[2]
    # The same change of public samples does change it.
    assert map_bytes(first, second, tmp_path, labelled=labelled) != made[0]
