"""Pictures as people have them: turned by EXIF, from archives of macOS, GIF, DICOM, and a table
beside them that says their class and patient."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset

from panas.data.arrays import as_samples
from panas.data.batches import batches_of
from panas.data.facts import Facts, fit
from panas.data.files.pictures import ORIENTATION, TURNS, read_folder, upright
from panas.data.files.tables import TableColumns
from panas.data.load import unlabelled
from panas.data.sources import Reading, read, read_rows
from panas.runtime.errors import BadInput

PIXELS = np.arange(24, dtype=np.uint8).reshape(4, 6)  # upright
UPRIGHT = Facts(class_names=("cat",), shape=(1, 4, 6), dtype="uint8")
BACK = {6: 1, 8: 3, 3: 2}  # quarters of a turn to the left that a camera has made


def turned(path: Path, orientation: int, note: bytes | None = None) -> Path:
    """The pixels as a camera that was held so stores them, and its note."""
    image = Image.fromarray(np.rot90(PIXELS, BACK.get(orientation, 0)).copy())
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, exif=exif.tobytes() if note is None else note)
    return path


@pytest.mark.parametrize("orientation", [1, *BACK])
def test_a_turned_picture_is_upright_wherever_it_is_read(tmp_path: Path, orientation: int):
    file = turned(tmp_path / "cat" / "a.png", orientation)
    wanted = torch.from_numpy(PIXELS)[None, None]
    whole = read_folder(tmp_path)
    assert (whole.x.shape, whole.notes) == ((1, 1, 4, 6), ())
    with Image.open(file) as image:
        every = {
            "folder": torch.from_numpy(whole.x),
            "owner": torch.from_numpy(read_rows(tmp_path, UPRIGHT).x),
            "path": torch.from_numpy(unlabelled(file, UPRIGHT).x),
            "image": torch.from_numpy(unlabelled(image, UPRIGHT).x),
        }
    assert {name for name, x in every.items() if not torch.equal(x, wanted)} == set()
    new = torch.cat([batch.inputs for batch in batches_of(str(tmp_path), UPRIGHT)])
    assert torch.equal(new, fit(whole, UPRIGHT).inputs())


class Pictures(Dataset):
    def __init__(self, file: Path) -> None:
        self.file = file

    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> tuple[Any, int]:
        return Image.open(self.file), i


def test_pictures_of_a_torch_data_set_are_upright_too(tmp_path: Path):
    samples = as_samples(Pictures(turned(tmp_path / "a.png", 6)))
    assert torch.equal(samples.x[1, 0], torch.from_numpy(PIXELS))


@pytest.mark.parametrize("note", [b"", b"Exif\0\0nothing", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff"])
def test_a_note_that_does_not_parse_turns_nothing(tmp_path: Path, note: bytes):
    turned(tmp_path / "cat" / "a.png", 1, note)
    assert np.array_equal(read_folder(tmp_path).x[0, 0], PIXELS)


def test_every_orientation_is_that_of_pillow():
    from PIL import ImageOps

    for number in (1, *TURNS):
        image = Image.fromarray(PIXELS)
        image.getexif()[ORIENTATION] = number
        assert np.array_equal(np.asarray(upright(image)), ImageOps.exif_transpose(image))


def picture(path: Path, value: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (3, 2), value).save(path)


def test_what_archives_of_macos_and_windows_add_is_passed_over(tmp_path: Path):
    picture(tmp_path / "cat" / "a.png")
    picture(tmp_path / "dog" / "more" / "b.png")
    added = ("cat/._a.png", "__MACOSX/cat/._a.png", "__MACOSX/c.png", "dog/more/._b.png")
    for name in (*added, "cat/.DS_Store", "dog/Thumbs.db", "._dog"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"\0\5\x16\7 no picture")
    facts = Facts(class_names=("cat", "dog"), shape=(1, 2, 3), dtype="uint8")
    raw = read_folder(tmp_path)
    assert (raw.class_names, raw.y.tolist()) == (("cat", "dog"), [0, 1])
    own = read_rows(tmp_path, facts)
    assert (own.y.tolist(), own.notes) == ([0, 1], ())
    batches = list(batches_of(str(tmp_path), facts))
    assert [name for batch in batches for name in batch.names] == ["cat/a.png", "dog/more/b.png"]


@pytest.mark.parametrize("part", ["", "train/"])
def test_pictures_beside_the_folders_of_classes_are_counted_and_not_named(
    tmp_path: Path, part: str
):
    picture(tmp_path / f"{part}cat" / "a.png")
    picture(tmp_path / f"{part}dog" / "more" / "b.png")
    picture(tmp_path / f"{part}jane.png")
    facts = Facts(class_names=("cat", "dog"), shape=(1, 2, 3), dtype="uint8")
    told = ("1 picture lies beside the folders of classes and is left out",)
    for raw in (read_folder(tmp_path), read_rows(tmp_path, facts)):
        assert (raw.y.tolist(), raw.notes) == ([0, 1], told)
    picture(tmp_path / "john.png")
    told = ("2 pictures lie beside the folders of classes and are left out",)
    assert read_folder(tmp_path).notes == read_rows(tmp_path, facts).notes == told


def test_the_first_frame_of_a_gif_is_read(tmp_path: Path):
    (tmp_path / "cat").mkdir()
    frames = [Image.fromarray(np.full((2, 3, 3), v, np.uint8)) for v in (250, 10)]
    frames[0].save(tmp_path / "cat" / "a.gif", save_all=True, append_images=frames[1:])
    raw = read_folder(tmp_path, shape=(3, 2, 3))
    assert np.abs(raw.x.astype(int) - 250).max() <= 2
    batch = next(batches_of(str(tmp_path), Facts(**{**vars(UPRIGHT), "shape": (3, 2, 3)})))
    assert batch.names == ["cat/a.gif"]


def dicom(path: Path, values: np.ndarray, bits: int, **changes: object) -> Path:
    """Write a DICOM file of one frame."""
    pydicom = pytest.importorskip("pydicom", reason="needs the extra dicom")
    data = pydicom.Dataset()
    data.file_meta = pydicom.dataset.FileMetaDataset()
    data.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    data.file_meta.MediaStorageSOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    data.file_meta.MediaStorageSOPInstanceUID = pydicom.uid.generate_uid()
    data.Rows, data.Columns = values.shape[:2]
    data.SamplesPerPixel = 3 if values.ndim == 3 else 1
    data.PhotometricInterpretation = "RGB" if values.ndim == 3 else "MONOCHROME2"
    data.PlanarConfiguration = 0
    data.BitsAllocated, data.BitsStored, data.HighBit = 8 * values.itemsize, bits, bits - 1
    data.PixelRepresentation = int(values.dtype.kind == "i")
    data.PixelData = values.tobytes()
    for name, value in changes.items():
        setattr(data, name, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    data.save_as(path, enforce_file_format=True)
    return path


DEEP = (np.arange(6).reshape(2, 3) * 819).astype(np.uint16)  # of 12 bits


@pytest.mark.parametrize(
    ("values", "bits", "changes", "wanted"),
    [
        (DEEP, 12, {}, DEEP),
        (DEEP, 12, {"PhotometricInterpretation": "MONOCHROME1"}, 4095 - DEEP),
        (DEEP.astype(np.int16) - 2048, 12, {}, DEEP),
        (DEEP, 12, {"RescaleSlope": 2, "RescaleIntercept": -5}, DEEP),
        ((DEEP // 16).astype(np.uint8), 8, {}, DEEP // 16),
    ],
)
def test_stored_values_of_dicom_are_read(
    tmp_path: Path, values: np.ndarray, bits: int, changes: dict[str, Any], wanted: np.ndarray
):
    dicom(tmp_path / "cat" / "a.dcm", values, bits, **changes)
    raw = read_folder(tmp_path)
    assert raw.x.dtype == (np.uint8 if bits == 8 else np.uint16)
    assert np.array_equal(raw.x[0, 0], wanted)
    dtype = "uint8" if bits == 8 else "float32"
    facts = Facts(class_names=("cat",), shape=(1, 2, 3), dtype=dtype, bits=bits)
    assert np.array_equal(read_rows(tmp_path, facts).x[0, 0], wanted)
    x = next(batches_of(str(tmp_path / "cat" / "a.dcm"), facts)).inputs
    assert torch.allclose(x[0, 0], torch.from_numpy(wanted / (2**bits - 1) * 2 - 1).float())


def test_dicom_in_colour_is_read_and_others_refused(tmp_path: Path):
    colour = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    file = dicom(tmp_path / "cat" / "a.dcm", colour, 8)
    assert np.array_equal(read_folder(tmp_path).x[0].transpose(1, 2, 0), colour)
    dicom(file, DEEP.astype(np.uint32), 20)
    with pytest.raises(BadInput, match=r"a readable picture at .*a\.dcm, got: neither grey"):
        read_folder(tmp_path)
    dicom(file, np.stack([DEEP, DEEP]).reshape(4, 3), 12, Rows=2, NumberOfFrames=2)
    with pytest.raises(BadInput, match="several frames"):
        read_folder(tmp_path)
    file.write_bytes(b"none")
    facts = Facts(class_names=("cat",), shape=(1, 2, 3), dtype="float32", bits=12)
    assert len(read_rows(tmp_path, facts).y) == 0


def test_without_pydicom_a_line_says_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    dicom(tmp_path / "cat" / "a.dcm", DEEP, 12)
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(BadInput, match=r"pip install '\.\[dicom\]'.*as \.png"):
        read_folder(tmp_path)


TABLE = (
    "file_name,site,diagnosis,patient\na.png,x,ill,p1\nmore/b.png,x,well,p2\nmore\\c.png,,ill,p1\n"
)
NAMED = TableColumns(label="diagnosis", group="patient")
BOTH = Facts(class_names=("ill", "well"), shape=(1, 2, 3), dtype="uint8")


def listed(folder: Path, text: str = TABLE) -> Path:
    for i, name in enumerate(("a.png", "more/b.png", "more/c.png")):
        picture(folder / name, 10 * i)
    (folder / "metadata.csv").write_text(text)
    return folder


def test_a_table_says_class_and_patient_of_each_picture(tmp_path: Path):
    raw = read(str(listed(tmp_path)), Reading(table=NAMED))
    assert raw.class_names == ("ill", "well")
    assert list(zip(raw.x[:, 0, 0, 0].tolist(), raw.y.tolist(), strict=True)) == [
        *((0, 0), (10, 1), (20, 0))
    ]
    assert raw.groups is not None
    assert raw.groups[0] == raw.groups[2] != raw.groups[1]
    assert "classes are those of metadata.csv" in raw.notes
    own = read_rows(tmp_path, BOTH, NAMED)
    assert (own.y.tolist(), own.groups.tolist()) == (raw.y.tolist(), raw.groups.tolist())


def test_folders_say_the_class_where_the_table_does_not(tmp_path: Path):
    for folder in ("train/ill", "train/well", "test/ill"):
        picture(tmp_path / folder / "a.png")
    rows = "file,patient\ntrain/ill/a.png,1\ntrain/well/a.png,1\ntest/ill/a.png,{}\n"
    (tmp_path / "metadata.csv").write_text(rows.format(2))
    named = TableColumns(group="patient")
    raw = read(str(tmp_path), Reading(table=named))
    assert (raw.class_names, sorted(raw.part.tolist())) == (("ill", "well"), [0, 0, 2])
    (tmp_path / "metadata.csv").write_text(rows.format(1))
    with pytest.raises(BadInput, match="each group in one of the parts"):
        read(str(tmp_path), Reading(table=named))
    own = read_rows(tmp_path, BOTH, named)
    assert own.part.tolist() == [0, 0, 0]
    assert any("1 rows train" in note for note in own.notes)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (TABLE + "d.png,x,ill,p1\n", "none of row 5"),
        (TABLE + "a.png,x,ill,p1\n", "several rows of one file"),
        (TABLE.replace("a.png,x,ill,p1\n", ""), "no row of a.png"),
        (TABLE.replace("well", ""), "an empty cell in row 3"),
        (TABLE.replace("p2", "NA"), "an empty cell in row 3"),
        (TABLE.replace(",p2", ""), "4 cells in row 3"),
        (TABLE.replace("file_name", "name"), "a column 'file_name'"),
        (TABLE.replace("patient", "person"), "a column 'patient'"),
    ],
)
def test_a_table_that_does_not_fit_its_pictures_is_refused(tmp_path: Path, text: str, says: str):
    with pytest.raises(BadInput) as caught:
        read(str(listed(tmp_path, text)), Reading(table=NAMED))
    assert says in str(caught.value)
    assert "well" not in str(caught.value)


@pytest.mark.parametrize(
    "more",
    [
        *("d.png,x,ill,p1\n", "b\n", "more/c.png,x,well,p9\n", "more/c.png,x,ill,p1\n"),
        *("more/c.png,x,,\n", "x" * 200_000 + "\n"),
    ],
)
def test_a_row_of_an_owners_table_says_nothing_of_other_pictures(tmp_path: Path, more: str):
    before = read_rows(listed(tmp_path), BOTH, NAMED)
    after = read_rows(listed(tmp_path, TABLE + more), BOTH, NAMED)
    kept = slice(2 if "more/c" in more else 3)
    assert np.array_equal(after.x, before.x[kept])
    assert np.array_equal(after.groups, before.groups[kept])


def test_groups_and_labels_of_a_folder_without_a_table_are_refused(tmp_path: Path):
    picture(tmp_path / "cat" / "a.png")
    with pytest.raises(BadInput, match=r"metadata\.csv .* 'file_name' and 'patient'"):
        read(str(tmp_path), Reading(table=TableColumns(group="patient")))
    (tmp_path / "metadata.csv").write_text("file_name,text\nother.png,x\n")
    assert read(str(tmp_path), Reading()).class_names == ("cat",)  # it says neither
