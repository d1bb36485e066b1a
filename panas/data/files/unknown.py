"""What to convert a file to that is of no kind that is read."""

from collections.abc import Sequence
from pathlib import Path

CONVERSIONS: dict[tuple[str, ...], str] = {
    (".xlsx", ".xls", ".xlsm", ".ods", ".numbers"): "save the sheet as .csv",
    (".txt", ".dat", ".data", ".tab", ".psv"): "name it .csv, if it is a table with a delimiter",
    (".json", ".jsonl", ".ndjson", ".xml", ".html"): "save it as a .csv or .parquet table",
    (".feather", ".arrow", ".orc", ".avro"): "save it as .parquet",
    (".sav", ".dta", ".sas7bdat", ".xpt", ".rds", ".rdata", ".rda"): "save it as .csv",
    (".db", ".sqlite", ".sqlite3", ".duckdb"): "save the query's rows as .csv",
    (".pkl", ".pickle", ".joblib", ".pt", ".pth"): (
        "nothing is unpickled: save arrays as .npz, or a table as .csv"
    ),
    (".h5", ".hdf5", ".mat", ".npy", ".safetensors", ".tfrecord"): (
        "save images and labels as .npz (numpy.savez), or a table as .csv"
    ),
    (".zip", ".tar", ".tgz", ".7z", ".rar", ".gz", ".bz2", ".xz", ".zst"): (
        "unpack it and name what was in it"
    ),
    (".nii", ".nrrd", ".mha", ".mhd"): "volumes are not read: save slices as pictures",
    (".wav", ".mp3", ".flac", ".ogg", ".mp4", ".avi", ".mov", ".pdf", ".docx"): (
        "save a vector for each file, as of an encoder, in a .csv table"
    ),
    (".heic", ".heif", ".avif", ".jp2", ".svg", ".raw", ".cr2", ".nef", ".psd"): (
        "save the pictures as .png, in a folder a class"
    ),
}
"""What is to be done with a file, by its ending."""


def conversion_of(path: Path, pictures: Sequence[str] = ()) -> str:
    """What to do with a file so that it can be read.

    Args:
        path: of a file of an unknown kind.
        pictures: endings of picture files.
    """
    ending = path.suffix.lower()
    if ending in pictures:
        return "put pictures into a folder with a subfolder for each class, and name that folder"
    for endings, what in CONVERSIONS.items():
        if ending in endings:
            return what
    return "save a table as .csv, or images and labels as .npz"
