"""A site's encoder, and the embeddings of its samples, which stay in its own folder.

The owner names the file in `site.toml`. A run names an encoder by its digest; a site whose file has
another refuses, before anything is charged or read.

Embeddings are as private as the samples. They are computed once, and may be deleted.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dprbft.paths import embeddings_folder
from dprbft.site.directory import SiteSettings
from panas.data.encoder import EncoderFacts
from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.features.encoders.cache import OnProgress, with_embeddings
from panas.features.encoders.encoder import Encoder
from panas.features.encoders.files import absolute, deferred, load_encoder
from panas.runtime.errors import BadInput
from panas.runtime.store import write_json

PROGRESS = "progress.json"  # in the folder of embeddings, while some are computed
EVERY = 1.0  # seconds between two notes of it


def encoder_file(folder: Path, settings: SiteSettings) -> str:
    """What `load_encoder` reads at a site; BadInput where the owner has named none."""
    if settings.encoder is None:
        raise BadInput(
            f"expected the file of an encoder at site {settings.name}, got none; name it in "
            "site.toml as encoder, with the path of the file that the run's owner names"
        )
    return absolute(settings.encoder, folder)


def check_encoder(folder: Path, settings: SiteSettings, facts: Facts) -> None:
    """Refuse a run whose encoder is not the site's; no sample is read for it.

    Args:
        folder: the site's.
        settings: the owner's.
        facts: of the run.
    """
    if facts.encoder is None:
        return
    own = load_encoder(encoder_file(folder, settings)).facts
    if different := facts.encoder.differs_from(own):
        raise BadInput(
            f"expected the run's encoder {facts.encoder.name} at site {settings.name}, got "
            f"{different}; name that file in site.toml"
        )


def site_encoder(
    folder: Path, settings: SiteSettings, facts: EncoderFacts, device: str = "cpu"
) -> Encoder:
    """The site's encoder, whose file is read at the first picture.

    Args:
        folder: the site's.
        settings: the owner's.
        facts: of the run's encoder.
        device: that it computes on.
    """
    return deferred(encoder_file(folder, settings), facts, device)


def embedded(
    folder: Path,
    settings: SiteSettings,
    samples: Samples,
    facts: Facts,
    on_progress: OnProgress | None = None,
    device: str = "cpu",
) -> Samples:
    """The site's samples with their embeddings, where the facts have an encoder.

    Args:
        folder: the site's.
        settings: the owner's.
        samples: the site's.
        facts: of the federation.
        on_progress: told of each sample that is computed; None: a file in the folder says it.
        device: that the encoder computes on.
    """
    if facts.encoder is None:
        return samples
    place = embeddings_folder(folder)
    encoder = site_encoder(folder, settings, facts.encoder, device)
    with noted(place) as note:
        return with_embeddings(samples, encoder, place, on_progress or note)


@contextmanager
def noted(place: Path) -> Iterator[OnProgress]:
    """Say in a file of the folder how many samples are through, while the block lasts."""
    path, last = place / PROGRESS, time.monotonic()

    def note(done: int, of: int) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY:
            write_json(path, {"done": done, "of": of})
            last = time.monotonic()

    try:
        yield note
    finally:
        path.unlink(missing_ok=True)
