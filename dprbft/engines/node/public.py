"""The public files that come with a hello: kept once at the site, and the hello that names them.

On the wire a hello names its files by what they are (`FILES`), never by a path. The site writes
them in its own folder for the run, and reads them there from then on. The common map is no file of
the hub's: the site makes it of facts and public samples, and compares the digest in the hello.
Vectors that an encoder has made of public samples do come from the hub, whose picture files a site
lacks: they are bounded, and choose the map's axes, but a row has norm 1 at most on any axes.

How much a hub may leave at a site: runs in its ledger, and bytes below its `runs/`.
"""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

from dprbft.config.map_width import width_of_map
from dprbft.config.schema import RunConfig
from dprbft.engines.frames import DIGEST, Request, sha256
from dprbft.messages import Hello
from dprbft.paths import (
    SitePaths,
    hello_file,
    map_file,
    public_file,
    refusal_file,
    settings_file,
    unlabelled_file,
)
from dprbft.site.data import read_samples
from dprbft.site.directory import read_site, site_ledger
from dprbft.site.joining import approved
from dprbft.site.site import config_of, public_of
from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.features.encoders.encoder import LARGEST
from panas.features.gabor import BRIGHTEST
from panas.features.map import common_map, write_map
from panas.runtime.errors import BadInput
from panas.runtime.store import write_bytes

FOLDER = "public"  # in the site's folder for a run: the files that came with its hello
GIB = 1 << 30


def _check_room(paths: SitePaths, config: RunConfig, size: int) -> None:
    """BadInput for a new run of which the owner's limits hold no more; `size` bytes came with it.

    Only what hubs have brought counts: the size of what a site has computed tells of its samples.
    """
    settings, where = read_site(paths.folder), settings_file(paths.folder).name
    ledger = site_ledger(paths.folder)
    shares = ledger.account().shares if ledger.is_open else {}
    if shares.get(paths.run) != config.budget(paths.index) and ledger.begun >= settings.run_limit:
        raise BadInput(
            f"expected at most {settings.run_limit} beginnings of runs in this ledger (run_limit "
            f"in {where}), got one more; raise it there if these are wanted"
        )
    if _brought(paths.home.parent) + size > settings.disk_limit * GIB:
        raise BadInput(
            f"expected runs of at most {settings.disk_limit:g} GiB in {paths.home.parent} "
            f"(disk_limit in {where}), got one that makes it more; remove runs that nobody needs, "
            "or raise it there"
        )


def _brought(runs: Path) -> int:
    """Bytes of the hellos and public files of all runs."""
    total = 0
    for home in runs.iterdir() if runs.is_dir() else ():
        for path in (hello_file(home), *(home / FOLDER).glob("*")):
            with suppress(OSError):  # it is not there, or has gone meanwhile
                total += path.lstat().st_size
    return total


FILES: Mapping[str, Callable[[Path], Path]] = {
    "public": public_file,
    "unlabelled": unlabelled_file,
}
"""What a hello may name, and where it is kept in a folder."""


def local_hello(paths: SitePaths, request: Request, folder: Path | None = None) -> bytes:
    """The hello or leave of a request with its names as paths at this site; writes the files.

    Nothing is written before the owner's settings allow the run, and nothing over files that a run
    has begun with. BadInput if the hello is refused, names other files than came, or they do not
    fit it.

    Args:
        paths: of the site in the run.
        request: of the hub, with its files.
        folder: where files are kept; None: in the site's own folder for the run.
    """
    hello = Hello.from_bytes(request.content)
    named = sorted(name for name in FILES if getattr(hello, name))
    if any(getattr(hello, name) != name for name in named):
        raise BadInput(
            f"expected a hello whose files are named {', '.join(FILES)}, got other names; ask with "
            "the same version of panas"
        )
    at = folder or paths.home / FOLDER
    path = {name: str(FILES[name](at).resolve()) if name in named else "" for name in FILES}
    common = str(map_file(at).resolve()) if hello.map else ""
    local = replace(hello, public=path["public"], unlabelled=path["unlabelled"], map=common)
    if request.verb == "hello":
        _take(paths, (hello, local), request, folder)
    elif request.files:
        raise BadInput(f"expected no files with {request.verb}, got some; leave them out")
    return local.to_bytes()


def _take(
    paths: SitePaths, hellos: tuple[Hello, Hello], request: Request, folder: Path | None
) -> None:
    """Keep the files of a hello, of which the second form has paths here, and make its map."""
    (hello, local), at = hellos, folder or paths.home / FOLDER
    config, facts = approved(paths, hello)
    named = [name for name in sorted(FILES) if getattr(hello, name)]
    _check_asked(config, hello, request, among_machines=folder is None)
    if _is_known(paths, local, request, at):
        _check_map(at, hello)
        return
    if any(name.endswith(DIGEST) for name in request.files):
        raise BadInput(
            "expected the files of a run that has not begun here, got their digests; send them "
            "along"
        )
    if folder is None:
        size = len(request.content) + sum(map(len, request.files.values()))
        _check_room(paths, config, size)
    for name, content in request.files.items():
        _keep(FILES[name](at), content, shared=folder is not None)
    _check(at, named, facts)
    if hello.map:
        if folder is None:  # in the shared folder of a simulation it stands already
            # By rule, of facts and public samples alone: none is taken from a hub.
            public, unlabelled = (
                public_of(path, facts) for path in (local.public, local.unlabelled)
            )
            width = width_of_map(config, facts, len(public))
            write_map(map_file(at), common_map(facts, public, unlabelled, width))
        _check_map(at, hello)


def _check_asked(
    config: RunConfig, hello: Hello, request: Request, *, among_machines: bool
) -> None:
    """Refuse a hello whose parts do not belong together."""
    if among_machines and not config.federation.remote:
        raise BadInput(
            "expected the names of all sites in federation.remote of a run among machines, got "
            "none: without them the run would pass for one of this machine"
        )
    if bool(hello.map) != config.federation.family.has_map:
        raise BadInput(
            "expected the digest of a feature map where the method has one, got "
            f"{'one' if hello.map else 'none'}; ask with the same version of panas"
        )
    named = sorted(name for name in FILES if getattr(hello, name))
    if named != sorted(name.removesuffix(DIGEST) for name in request.files):
        raise BadInput(
            f"expected the files that the hello names ({', '.join(named) or 'none'}), got "
            f"{', '.join(request.files) or 'none'}; send them along"
        )


def begun_elsewhere(site_paths: SitePaths, known: Hello) -> bool:
    """Whether a run that has begun here is one among machines, whose files came with its hello."""
    if not config_of(known.config).federation.remote:
        return False
    paths = [path for name in FILES if (path := getattr(known, name))]
    paths += [known.map] if known.map else []
    own = (site_paths.home / FOLDER).resolve()
    return all(Path(path).resolve().parent == own for path in paths)


def tidy(paths: SitePaths) -> None:
    """Remove what a hello has left that nothing came of: its files, and why it was refused."""
    if hello_file(paths.home).exists():
        return
    kept = (map_file, *FILES.values())
    for path in (refusal_file(paths.home), *(file(paths.home / FOLDER) for file in kept)):
        path.unlink(missing_ok=True)
    for empty in (paths.home / FOLDER, paths.home, paths.home.parent):
        with suppress(OSError):  # it is not there, or it holds something
            empty.rmdir()


def _is_known(paths: SitePaths, local: Hello, request: Request, at: Path) -> bool:
    """Whether the run has begun here; BadInput if that was with other files."""
    noted = hello_file(paths.home)
    if not noted.is_file():
        return False
    hello = Hello.from_bytes(noted.read_bytes())
    same = all(getattr(hello, name) == getattr(local, name) for name in (*FILES, "map"))
    digests = _digests(request.files)
    if not same or not all(_holds(FILES[name](at), digest) for name, digest in digests.items()):
        raise BadInput(
            f"expected the public files that run {paths.run} has begun with, got others; give "
            "another directory"
        )
    return True


def _keep(path: Path, content: bytes, *, shared: bool) -> None:
    """Write a file; what stands in a shared folder is not the node's to replace."""
    if _holds(path, sha256(content)):
        return
    if shared and path.exists():
        raise BadInput(f"expected the file {path.name} of the run, got another; start it again")
    write_bytes(path, content)


def _digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """SHA-256 of each file by what it is; of one that did not come along, as the hello has it."""

    def digest(name: str, content: bytes) -> str:
        return content.decode("ascii", "replace") if name.endswith(DIGEST) else sha256(content)

    return {name.removesuffix(DIGEST): digest(name, content) for name, content in files.items()}


def _holds(path: Path, digest: str) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == digest


def _check_map(at: Path, hello: Hello) -> None:
    """Refuse a run whose map is not the one that its facts and public samples give here."""
    if hello.map and not _holds(map_file(at), hello.map):
        raise BadInput(
            "expected the feature map that this site makes of the run's facts and public samples, "
            "got the digest of another; use the same versions of panas and torch at hub and sites"
        )


def _check(at: Path, named: list[str], facts: Facts) -> None:
    """Refuse files that do not fit the run; also such as were made to break a reader."""
    try:
        for name in named:
            if not _fits(FILES[name](at), facts):
                raise BadInput(f"expected a {name} file of the run's shape, got another")
    except Exception as e:
        raise BadInput(
            "expected public files that fit the run's facts, got others; start it again"
        ) from e


def _fits(path: Path, facts: Facts) -> bool:
    samples, none = read_samples(path, facts.classes), facts.no_samples()
    typed = samples.x.dtype == none.x.dtype and samples.y.dtype == torch.int64
    sized = samples.x.shape == (len(samples.y), *facts.shape) and samples.y.dim() == 1
    if samples.files is not None or not _has_embeddings(samples, facts):
        return False
    along = (samples.groups, samples.part)
    if not (typed and sized and len(samples)) or any(
        a is not None and a.shape != samples.y.shape for a in along
    ):
        return False
    most = LARGEST if facts.vectors else BRIGHTEST
    if samples.x.is_floating_point() and not bool((samples.x.abs() <= most).all()):
        return False  # NaN is among these
    return int(samples.y.min()) >= 0 and int(samples.y.max()) < facts.classes


def _has_embeddings(samples: Samples, facts: Facts) -> bool:
    """Whether public samples have a vector each where the run has an encoder, and else none."""
    vectors = samples.embeddings
    if vectors is None or facts.encoder is None:
        return vectors is None and facts.encoder is None
    fits = vectors.shape == (len(samples.y), facts.encoder.outputs)
    return fits and vectors.dtype == torch.float32 and bool((vectors.abs() <= LARGEST).all())
