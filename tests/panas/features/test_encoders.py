"""Encoders: a vector depends on its picture alone, whatever file it comes from; bad files."""

import json
import math
import pickle
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_encoder import (
    OUTPUTS,
    SIDE,
    Averaged,
    encoder_facts,
    tiny_encoder,
    write_onnx,
    write_program,
)
from torch import Tensor

from panas.data.encoder import EncoderFacts
from panas.data.samples import Samples
from panas.features.axes import FEWEST, fit_axes
from panas.features.encoders import files
from panas.features.encoders.encoder import Encoder
from panas.features.encoders.files import ONLY_WEIGHTS, absolute, deferred, load_encoder
from panas.runtime.errors import BadInput

SAID = '{"mean": 127, "std": 128, "scale": 255}'
RAN = "panas_test_ran"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = tmp_path_factory.mktemp("encoders")
    write_program(result / "tiny.pt2", said=SAID)
    write_onnx(result / "tiny.onnx", said=SAID)
    return result


def pictures(n: int, side: int = SIDE, channels: int = 3) -> torch.Tensor:
    return torch.rand(n, channels, side, side, generator=torch.Generator().manual_seed(n))


def of_bytes(n: int, channels: int = 1) -> Samples:
    x = (pictures(n, 8, channels) * 255).to(torch.uint8)
    return Samples(x, torch.zeros(n, dtype=torch.int64), 2)


@pytest.fixture(params=["function", "tiny.pt2", "tiny.onnx"])
def encoder(request: pytest.FixtureRequest, folder: Path) -> Encoder:
    if request.param == "function":
        return tiny_encoder()
    return load_encoder(str(folder / request.param))


def test_a_vector_has_its_bits_in_any_company_and_at_any_time(encoder: Encoder):
    x = pictures(7)
    whole = encoder(x)
    assert whole.shape == (7, OUTPUTS)
    assert whole.dtype == torch.float32
    order = torch.tensor([3, 0, 6, 1])
    assert torch.equal(encoder(x[order]), whole[order])
    for i in range(7):
        beside = torch.cat([x[i : i + 1], torch.full((1, 3, SIDE, SIDE), torch.nan)])
        assert torch.equal(encoder(beside)[0], whole[i])
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert torch.equal(encoder(x), whole)
    finally:
        torch.set_num_threads(threads)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30, 3e38])
def test_a_vector_that_is_not_finite_or_huge_is_zero(value: float):
    encoder = Encoder(encoder_facts(), lambda x: x.flatten(1)[:, :OUTPUTS] * value)
    assert not encoder(pictures(2)).any()


def test_files_of_two_kinds_and_a_function_agree(folder: Path):
    both = [load_encoder(str(folder / f"tiny.{kind}")) for kind in ("pt2", "onnx")]
    facts = replace(encoder_facts(), mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
    x = pictures(3)
    expected = Encoder(facts, Averaged())(x)
    for one in both:
        torch.testing.assert_close(one(x), expected, rtol=1e-4, atol=1e-5)
        assert (one.facts.shape, one.facts.outputs) == ((3, SIDE, SIDE), OUTPUTS)
        assert one.facts.mean == facts.mean
    assert [one.facts.kind for one in both] == ["program", "onnx"]
    assert both[0].facts.sha256 != both[1].facts.sha256


def test_what_stands_beside_a_file_goes_before_what_it_says(tmp_path: Path):
    path = write_program(tmp_path / "tiny.pt2", said=SAID)
    (tmp_path / "tiny.toml").write_text("mean = 0.5\nstd = [0.5, 0.25, 0.125]\n")
    facts = load_encoder(str(path)).facts
    assert (facts.mean, facts.std) == ((0.5,) * 3, (0.5, 0.25, 0.125))
    for wrong in ("size = 13", "mean = [1, 2]", "colour = true", "std = 0", "scale = 0", "= 1"):
        (tmp_path / "tiny.toml").write_text(wrong)
        with pytest.raises(BadInput):
            load_encoder(str(path))


@pytest.mark.parametrize(
    ("said", "got"),
    [("mean = 127\nstd = 128", "mean = [127.0, "), ("std = 0", "std = [0.0, ")],
)
def test_a_mean_of_bytes_without_their_scale_is_told_with_its_key(
    said: str, got: str, tmp_path: Path
):
    path = write_program(tmp_path / "tiny.pt2")
    (tmp_path / "encoder.toml").write_text(said)
    with pytest.raises(BadInput, match=r"encoder\.toml.*give scale = 255") as caught:
        load_encoder(str(path))
    assert str(path) in str(caught.value)
    assert got in str(caught.value)
    if got.startswith("mean"):
        (tmp_path / "encoder.toml").write_text(f"{said}\nscale = 255")
        assert load_encoder(str(path)).facts.mean == (127 / 255,) * 3


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pictures_of_other_sizes_and_channels_are_brought_to_the_encoders(channels: int):
    rows = tiny_encoder().of(of_bytes(3, channels))
    assert rows.shape == (3, OUTPUTS)
    assert (rows.std(0) > 0).any()


def test_a_picture_is_read_from_its_own_file_at_the_encoders_size(tmp_path: Path):
    rng = np.random.default_rng(0)
    large = rng.integers(0, 256, (48, 48, 3), dtype=np.uint8)
    Image.fromarray(large).save(tmp_path / "a.png")
    small = np.asarray(Image.fromarray(large).resize((8, 8), Image.Resampling.BILINEAR))
    x = torch.from_numpy(small.copy()).permute(2, 0, 1)[None]
    samples = Samples(x, torch.zeros(1).long(), 2, files=np.array([str(tmp_path / "a.png")]))
    own = np.asarray(Image.fromarray(large).resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    expected = tiny_encoder()(torch.from_numpy(own.copy()).permute(2, 0, 1)[None] / 255)
    assert torch.equal(tiny_encoder().of(samples), expected)
    gone = replace(samples, files=np.array([str(tmp_path / "none.png")]))
    assert torch.equal(tiny_encoder().of(gone), tiny_encoder().of(replace(samples, files=None)))


class Runs:
    """What a pickle may do that is loaded without care."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, (f"import sys; sys.{RAN} = True",)


def test_no_code_of_a_file_is_unpickled(folder: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(sys, RAN, False, raising=False)
    (tmp_path / "weights.pth").write_bytes(pickle.dumps(Runs()))
    torch.save({"a": Runs()}, tmp_path / "saved.pth")
    for name in ("weights.pth", "saved.pth"):
        with pytest.raises(BadInput, match="readable encoder"):
            load_encoder(f"squeezenet1_1:{tmp_path / name}")
    with zipfile.ZipFile(folder / "tiny.pt2") as source:
        members = {name: source.read(name) for name in source.namelist()}
    inside = next(name for name in members if name.endswith("model.pt"))
    with zipfile.ZipFile(tmp_path / "bad.pt2", "w") as target:
        for name, content in members.items():
            evil = (tmp_path / "saved.pth").read_bytes()
            target.writestr(name, evil if name == inside else content)
    with pytest.raises(BadInput):
        load_encoder(str(tmp_path / "bad.pt2"))
    with zipfile.ZipFile(tmp_path / "code.pt2", "w") as target:
        for name, content in members.items():
            target.writestr(name, content)
        target.writestr("tiny/data/aotinductor/model/a.so", b"")
    with pytest.raises(BadInput, match="machine code"):
        load_encoder(str(tmp_path / "code.pt2"))
    said = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
    with zipfile.ZipFile(tmp_path / "object.pt2", "w") as target:
        for name, content in members.items():
            constants = name.endswith("constants_config.json")
            target.writestr(name, json.dumps({"config": {"a": said}}) if constants else content)
        folder_of = next(n for n in members if n.endswith("constants_config.json"))
        target.writestr(f"{folder_of.rpartition('/')[0]}/opaque_obj_0", pickle.dumps(Runs()))
    with pytest.raises(BadInput, match="pickled objects"):
        load_encoder(str(tmp_path / "object.pt2"))
    assert not getattr(sys, RAN)
    assert ONLY_WEIGHTS not in __import__("os").environ


def test_no_other_file_is_read_for_an_onnx_file(tmp_path: Path, monkeypatch):
    """Its digest would not cover them, and they could be a site's samples."""
    monkeypatch.chdir(tmp_path)
    write_onnx(Path("tiny.onnx"), outside="weights.bin")
    assert Path("weights.bin").stat().st_size > 0
    with pytest.raises(BadInput, match=r"readable encoder .* with external_data=False"):
        load_encoder("tiny.onnx")


class Drawing(Averaged):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.rand(1, OUTPUTS)


class Counting(Averaged):
    """As a batch norm in training keeps a running mean."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(x.mean())
        return super().forward(x) + self.seen


@pytest.mark.parametrize("kind", [Drawing, Counting])
def test_an_encoder_that_draws_or_keeps_numbers_is_refused(kind: type[Averaged], tmp_path: Path):
    program = torch.export.export(kind(), (torch.zeros(1, 3, SIDE, SIDE),))
    torch.export.save(program, tmp_path / "a.pt2")
    with pytest.raises(BadInput, match="same vector of a picture"):
        load_encoder(str(tmp_path / "a.pt2"))


def test_weights_called_a_program_are_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    torch.save(Averaged().state_dict(), tmp_path / "a.pt2")
    with pytest.raises(BadInput, match="another file of torch"):
        load_encoder(str(tmp_path / "a.pt2"))
    assert not caplog.records


class Scaled(Averaged):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.factor


@pytest.mark.parametrize(
    ("factor", "says"),
    [(math.nan, "larger ones or NaN"), (1e20, "larger ones or NaN"), (0.0, "the same for three")],
)
def test_an_encoder_without_a_vector_of_use_is_refused(factor: float, says: str, tmp_path: Path):
    program = torch.export.export(Scaled(factor), (torch.zeros(1, 3, SIDE, SIDE),))
    torch.export.save(program, tmp_path / "a.pt2")
    with pytest.raises(BadInput, match=says):
        load_encoder(str(tmp_path / "a.pt2"))


def test_a_picture_that_a_network_fails_at_has_a_zero_vector():
    """A refusal would tell of the one sample that caused it."""
    fine = tiny_encoder()

    def fails_at_bright(x: Tensor) -> Tensor:
        if x.mean() > 1.5:
            raise RuntimeError("overflow")
        return fine.network(x) if x.mean() < 1 else fine.network(x)[:, :3]

    one = Encoder(encoder_facts(), fails_at_bright)
    levels = torch.tensor([0.4, 1.0, 0.8])[:, None, None, None]
    z = one(levels.expand(3, 3, SIDE, SIDE))
    assert z[0].any()
    assert not z[1:].any()

    def always(x: Tensor) -> Tensor:
        raise BadInput("expected the encoder, got none; put it back")

    with pytest.raises(BadInput, match="put it back"):
        Encoder(encoder_facts(), always)(pictures(1))


@pytest.mark.parametrize("name", ["bad.onnx", "bad.pt2", "bad.txt", "resnet18:bad.pth"])
@pytest.mark.parametrize("content", [b"", b"xxxx", b"PK\x03\x04" + bytes(50)])
def test_a_malformed_file_is_one_line(tmp_path: Path, name: str, content: bytes):
    path = tmp_path / name.rpartition(":")[2]
    path.write_bytes(content)
    with pytest.raises(BadInput) as refused:
        load_encoder(absolute(name, tmp_path))
    text = str(refused.value)
    assert text.startswith("expected")
    assert "\n" not in text
    assert len(text) < 600


def test_torn_files_other_batches_and_missing_ones_are_refused(folder: Path, tmp_path: Path):
    for kind in ("onnx", "pt2"):
        content = (folder / f"tiny.{kind}").read_bytes()
        (tmp_path / f"torn.{kind}").write_bytes(content[: len(content) // 2])
        with pytest.raises(BadInput, match="readable encoder"):
            load_encoder(str(tmp_path / f"torn.{kind}"))
    write_onnx(tmp_path / "two.onnx", batch=2)
    with pytest.raises(BadInput, match="one picture"):
        load_encoder(str(tmp_path / "two.onnx"))
    with pytest.raises(BadInput, match="found none"):
        load_encoder(str(tmp_path / "none.onnx"))
    (tmp_path / "w.pth").write_bytes(b"")
    with pytest.raises(BadInput, match="architecture of torchvision"):
        load_encoder(f"resnet1:{tmp_path / 'w.pth'}")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pth", "safetensors"])
def test_a_network_of_torchvision_is_read_without_its_classifier(tmp_path: Path, kind: str):
    from safetensors.torch import save_file
    from torchvision.models import shufflenet_v2_x0_5

    network, path = shufflenet_v2_x0_5(weights=None, num_classes=7).eval(), tmp_path / f"w.{kind}"
    state = {k: v.contiguous() for k, v in network.state_dict().items()}
    torch.save(state, path) if kind == "pth" else save_file(state, path)
    (tmp_path / "w.toml").write_text("size = 64\n")
    encoder = load_encoder(f"shufflenet_v2_x0_5:{path}")
    assert (encoder.facts.outputs, encoder.facts.shape) == (1024, (3, 64, 64))
    with pytest.raises(BadInput, match="readable encoder"):
        load_encoder(f"resnet18:{path}")


def test_an_encoder_that_is_read_later_is_the_one_that_was_agreed_on(folder: Path):
    path = str(folder / "tiny.onnx")
    facts = load_encoder(path).facts
    x = pictures(2)
    assert torch.equal(deferred(path, facts)(x), load_encoder(path)(x))
    with pytest.raises(BadInput, match="SHA-256"):
        deferred(path, replace(facts, sha256="b" * 64))(x)


def test_onnx_computes_on_a_gpu_where_onnxruntime_can():
    cuda, both = files.CUDA, [files.CUDA, files.CPU]
    assert files._providers(both, "cpu") == [files.CPU]
    assert files._providers([files.CPU], "cuda") == [files.CPU]
    (name, options), rest = files._providers(both, "cuda:1")
    assert (name, rest, options["device_id"], options["use_tf32"]) == (cuda, files.CPU, "1", "0")
    assert files._providers(both, "cuda")[0][1]["device_id"] == "0"


def test_facts_of_an_encoder_are_checked_and_come_back():
    facts = encoder_facts()
    assert EncoderFacts.from_json(facts.to_json()) == facts
    assert facts.differs_from(replace(facts, name="other")) is None
    changes = {
        "kind": "pickle",
        "name": "",
        "sha256": "A" * 64,
        "shape": (3, 12, 2**20),
        "mean": (math.nan,) * 3,
        "std": (0.0,) * 3,
        "outputs": 2**20,
    }
    for key, value in changes.items():
        with pytest.raises(BadInput):
            replace(facts, **{key: value})
    for record in ({}, {"a": 1}, facts.to_json() | {"more": 1}, facts.to_json() | {"mean": 3}):
        with pytest.raises(BadInput):
            EncoderFacts.from_json(record)
    assert "SHA-256" in (facts.differs_from(replace(facts, sha256="b" * 64)) or "")
    assert facts.differs_from(None) == "no encoder"


@pytest.mark.parametrize("value", [0.0, math.nan, 1e20])
def test_public_pictures_without_a_vector_of_use_refuse_their_encoder(value: float):
    vectors = torch.full((FEWEST, OUTPUTS), value)
    with pytest.raises(BadInput, match="got none that is finite"):
        fit_axes(vectors, 4, encoder_facts())
    vectors[0] = torch.arange(1.0, OUTPUTS + 1)
    assert fit_axes(vectors, 4, encoder_facts()).encoder_facts == encoder_facts()
    assert fit_axes(vectors[:0], 4, encoder_facts()).encoder_facts == encoder_facts()
