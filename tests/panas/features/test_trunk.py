"""An encoder's first layers: what they compute, where they end, and what their record keeps."""

import json
import math
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from deep_encoder import SIDE, Deep, draw_statistics, write_deep
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision.models import get_model

from panas.data.samples import Samples
from panas.features.encoders import layers as module
from panas.features.encoders.bits import BITS, MOST, packed, packed_bytes, unpacked
from panas.features.encoders.files import load_encoder
from panas.features.encoders.layers import BYTES, FIRST, is_small, trunk_of
from panas.features.encoders.trunk import Trunk, restored
from panas.runtime.errors import BadInput

ROUNDED = 0.03  # of a value's norm, by weights of few bits


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = tmp_path_factory.mktemp("trunks")
    write_deep(result / "deep.pt2")
    write_deep(result / "deep.onnx")
    return result


def pictures(n: int = 5) -> Samples:
    rng = np.random.default_rng(n)
    x = torch.from_numpy(rng.integers(256, size=(n, 3, SIDE, SIDE), dtype=np.uint8))
    return Samples(x, torch.zeros(n, dtype=torch.int64), 2)


def trunk_in(path: Path | str, most: int = BYTES) -> Trunk | None:
    return trunk_of(str(path), load_encoder(str(path)).facts, lambda t: is_small(t, most))


def apart(got: Tensor, wanted: Tensor) -> float:
    return float((got - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("name", ["deep.pt2", "deep.onnx"])
def test_a_trunk_computes_what_the_encoder_does(name: str, folder: Path) -> None:
    trunk = trunk_in(folder / name, 16 * FIRST + 3000)
    assert trunk is not None
    x = pictures().inputs()
    normalised = ((x + 1) / 2 - trunk.mean) / trunk.std
    assert trunk.shape == (16, 8, 8)
    with torch.no_grad():
        assert apart(trunk.last(x), Deep().maps(normalised)) < ROUNDED


@pytest.mark.parametrize(
    "name",
    [
        "resnet18",
        pytest.param("mobilenet_v3_small", marks=pytest.mark.slow),
        pytest.param("efficientnet_b0", marks=pytest.mark.slow),
        pytest.param("regnet_y_400mf", marks=pytest.mark.slow),
    ],
)
def test_layers_of_a_whole_network_make_its_vector(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = get_model(name, weights=None).eval()
        draw_statistics(network)
    path = tmp_path / "weights.safetensors"
    save_file({k: v.contiguous() for k, v in network.state_dict().items()}, path)
    (tmp_path / "encoder.toml").write_text("size = 64\n")
    given = f"{name}:{path}"
    encoder = load_encoder(given)
    monkeypatch.setattr(module, "_ends", lambda layers, k: k == len(layers.steps) - 1)
    monkeypatch.setattr(module, "_is_map", lambda shape: True)
    trunk = trunk_of(given, encoder.facts, lambda _: True)
    assert trunk is not None
    x = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert apart(trunk.last(2 * x - 1).flatten(), encoder.vector(x[0])) < ROUNDED


def test_it_ends_where_one_value_holds_all_and_as_deep_as_bytes_allow(folder: Path) -> None:
    path = folder / "deep.pt2"
    whole, less = trunk_in(path), trunk_in(path, 16 * FIRST + 3000)
    assert whole is not None
    assert less is not None
    assert whole.shape == (32, 8, 8)
    assert less.shape == (16, 8, 8)
    assert less.bytes + FIRST * 16 <= 16 * FIRST + 3000
    # Below it comes the sum, before which two values are needed.
    sums = trunk_in(path, less.bytes + FIRST * 16 - 1)
    assert sums is not None
    assert sums.steps[-1].op == "add"
    assert trunk_in(path, 1000) is None  # too few convolutions


def test_it_never_ends_within_a_branch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST", 1)
    monkeypatch.setattr(module, "FIRST", 0)
    path = folder / "deep.pt2"
    ends, most = list[str](), BYTES
    while trunk := trunk_in(path, most):
        ends.append(trunk.steps[-1].op)
        most = trunk.bytes - 1
    assert ends == ["conv", "relu", "add", "max_pool", "conv"]


def test_a_layer_that_nobody_knows_ends_the_trunk(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.plain = Deep()

        def forward(self, x: Tensor) -> Tensor:
            last: Tensor = self.plain.last(self.plain.maps(x).erf())
            return last.mean((2, 3))

    x = torch.zeros(1, 3, SIDE, SIDE)
    torch.export.save(torch.export.export(Odd(), (x,)), tmp_path / "odd.pt2")
    trunk = trunk_in(tmp_path / "odd.pt2")
    assert trunk is not None
    assert trunk.shape == (16, 8, 8)


def test_maps_that_would_fill_the_disk_are_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST", 32 * 8 * 8 - 1)
    trunk = trunk_in(folder / "deep.pt2")
    assert trunk is not None
    assert trunk.shape == (16, 8, 8)
    monkeypatch.setattr(module, "LARGEST", 100)
    assert trunk_in(folder / "deep.pt2") is None


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_an_encoder_in_onnx_needs_both_packages(
    package: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = shutil.copy(folder / "deep.onnx", tmp_path)  # another file: none is in memory
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BadInput, match=r"did not find both.*\[encoders\]"):
        load_encoder(str(copied))


def test_an_encoder_of_no_feature_maps_has_none(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 8)).eval()
    program = torch.export.export(network, (torch.zeros(1, 3, SIDE, SIDE),))
    torch.export.save(program, tmp_path / "flat.pt2")
    assert trunk_in(tmp_path / "flat.pt2") is None


def test_networks_do_without_layers_that_cannot_be_computed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("an unforeseen shape")

    monkeypatch.setattr(module, "_shapes", broken)
    assert trunk_in(folder / "deep.pt2") is None
    monkeypatch.setitem(module._READERS, "program", broken)  # type: ignore[arg-type]
    assert trunk_in(folder / "deep.pt2") is None


def settled(folder: Path) -> Trunk:
    trunk = trunk_in(folder / "deep.pt2")
    assert trunk is not None
    trunk.settle(pictures(9))
    return trunk


def test_maps_are_scaled_by_public_pictures_and_bounded(folder: Path) -> None:
    trunk, public = settled(folder), pictures(9)
    with torch.no_grad():
        last = trunk.last(public.inputs())
    mean, spread = last.mean((0, 2, 3)), last.std((0, 2, 3))
    z = (last - mean[:, None, None]) / (3 * spread[:, None, None])
    with torch.no_grad():
        torch.testing.assert_close(trunk(public.inputs()), z.clamp(-1, 1), rtol=1e-4, atol=1e-4)
    bytes_ = trunk.of(public).float() / 127.5 - 1
    assert (bytes_ - z.clamp(-1, 1)).abs().max() <= 1 / 127.5


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30])
def test_maps_of_any_numbers_are_bounded(value: float, folder: Path) -> None:
    x = torch.full((1, 3, SIDE, SIDE), value)
    with torch.no_grad():
        maps = settled(folder)(x)
    assert maps.isfinite().all()
    assert maps.abs().max() <= 1


def test_it_takes_pictures_of_any_size_and_one_channel(folder: Path) -> None:
    trunk = settled(folder)
    with torch.no_grad():
        assert trunk(torch.zeros(2, 1, 8, 8)).shape == (2, *trunk.shape)
        assert trunk(torch.zeros(2, 4, 50, 40)).shape == (2, *trunk.shape)


def test_its_record_and_weights_build_it_again(folder: Path) -> None:
    trunk = settled(folder)
    about = json.loads(json.dumps(trunk.to_json()))
    again, whole = (restored(about, trunk.packed(), whole=w) for w in (False, True))
    with torch.no_grad():
        x = pictures().inputs()
        assert torch.equal(again(x), trunk(x))
        assert torch.equal(whole(x), trunk(x))
    assert again.bytes == whole.bytes == trunk.bytes
    assert trunk.bytes == sum(t.numel() * t.element_size() for t in trunk.packed().values())
    assert sum(b.numel() for b in whole.buffers()) < sum(b.numel() for b in again.buffers())
    weights = [t for name, t in trunk.state_dict().items() if name.startswith("weight")]
    assert {t.dtype for t in weights if t.dim() == 4} == {torch.int8}
    assert max(int(t.abs().max()) for t in weights if t.dim() == 4) == MOST


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e5])
def test_weights_that_few_bits_cannot_hold_are_refused(value: float, folder: Path) -> None:
    trunk = settled(folder)
    weight, bias = trunk.weight0.float(), torch.zeros(len(trunk.weight0))
    with pytest.raises(ValueError, match="weights"):
        trunk.hold(0, weight, bias + value)
    with pytest.raises(ValueError, match="weights"):
        trunk.hold(0, weight * value * 1e6, bias)


@pytest.mark.parametrize("shape", [(0,), (1,), (8,), (3, 5), (4, 1, 3, 3), (7, 11, 1, 1)])
def test_packed_numbers_are_the_same_again(shape: tuple[int, ...]) -> None:
    drawn = np.random.default_rng(0).integers(-MOST, MOST, size=shape, endpoint=True)
    values = torch.from_numpy(drawn.astype(np.int8))
    kept = packed(values)
    text = "".join(f"{value + MOST:0{BITS}b}" for value in drawn.flatten().tolist())
    assert "".join(f"{byte:08b}" for byte in kept.tolist())[: len(text)] == text
    assert len(kept) == packed_bytes(values.numel()) == math.ceil(len(text) / 8)
    assert torch.equal(unpacked(kept, shape), values)
    with pytest.raises(RuntimeError, match="bytes"):
        unpacked(kept, (*shape, 9, 9) if values.numel() else (9,))


@pytest.mark.parametrize("damage", ["op", "missing", "weights", "centre", "reads", "shape"])
def test_another_record_is_refused(damage: str, folder: Path) -> None:
    trunk = settled(folder)
    about, weights = trunk.to_json(), trunk.packed()
    if damage == "op":
        about["steps"][0] = about["steps"][0] | {"op": "eval"}
    elif damage == "missing":
        del about["steps"]
    elif damage == "centre":
        del weights["centre"]
    elif damage == "reads":
        about["steps"][0] = about["steps"][0] | {"of": [99]}
    elif damage == "shape":
        about["shape"] = []
    else:
        del weights["bias0"], weights["weight0"]
    with pytest.raises(BadInput):
        restored(about, weights)


@pytest.mark.parametrize(
    "kernel",
    [[1000, 3, 3, 3], [-8, -3, 3, 3], [math.nan], [math.inf], [10**400], [8 * 27], [], None],
)
def test_kernels_of_another_shape_are_refused(kernel: list[float] | None, folder: Path) -> None:
    trunk = settled(folder)
    about, weights = trunk.to_json(), trunk.packed()
    if kernel is None:
        del about["kernels"]["weight0"]
    else:
        about["kernels"]["weight0"] = kernel
    with pytest.raises(BadInput):
        restored(about, weights)


def test_a_map_depends_on_its_picture_alone(folder: Path) -> None:
    trunk, x = settled(folder), pictures(4).inputs()
    with torch.no_grad():
        maps = trunk(x)
        assert trunk(x[:0]).shape == (0, *trunk.shape)
        x[1:] = math.nan
        assert torch.equal(trunk(x)[0], maps[0])


def test_mirrored_pictures_are_read_from_right_to_left(folder: Path) -> None:
    trunk, samples = settled(folder), pictures()
    turned = Samples(samples.x.flip(3), samples.y, samples.classes)
    assert torch.equal(trunk.of(samples, mirrored=True), trunk.of(turned))
    assert not torch.equal(trunk.of(samples), trunk.of(turned))
