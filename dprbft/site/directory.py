"""A site's directory: `site.toml`, its ledger, and a folder a run; all of it private to its owner.

The owner says there where the data are, what they may cost in their whole life, and what may leave.
`facts.json` is what the owner declares to federations: class names, shape and columns are public.
"""

import hashlib
import os
import tomllib
from pathlib import Path
from typing import Annotated, Literal

import tomli_w
from pydantic import Field, field_validator

from dprbft.config.families import method_names
from dprbft.config.flat import Name, Section, validated
from dprbft.paths import declared_file, key_file, ledger_file, settings_file
from dprbft.site.federations import FederationShare
from panas.data.facts import Facts
from panas.data.files.dialect import Dates, Delimiter, Dialect, Numbers
from panas.data.files.tables import TableColumns
from panas.privacy.accounting.events import Unprotected
from panas.privacy.budget import Budget
from panas.privacy.ledger.account import Account, Allotment
from panas.privacy.ledger.ledger import Ledger
from panas.privacy.release.histogram import LABEL_HISTOGRAM
from panas.privacy.release.kind import kind_named, kind_names
from panas.runtime.errors import BadInput
from panas.runtime.store import read_bytes, write_bytes, write_json

STORED = ".safetensors"
"""Of samples that a simulation has shared out; owners have other files."""


def allowed_releases(*, unprotected: bool) -> tuple[str, ...]:
    """What may leave where the owner names nothing: the kinds of release that a ledger can bound,
    or all of them, and the label histogram that goes along with some.
    """
    bounded = tuple(n for n in kind_names() if kind_named(n).CHARGED_AS is not Unprotected)
    return (*(kind_names() if unprotected else bounded), LABEL_HISTOGRAM)


class SiteSettings(Section):
    """What the owner of a site decides."""

    name: Name
    data: str  # a file or folder, from the site's directory or absolute
    label: str | None = None  # a table's label column
    group: str | None = None  # column, or array of a .npz, of the privacy unit, as a patient
    classes: tuple[str, ...] = ()  # names of all that are declared; (): those that the data have
    # lowest and highest value of a table's columns
    ranges: dict[str, tuple[float, float]] = Field(default_factory=dict)
    bits: Annotated[int, Field(ge=8, le=16)] | None = None  # depth of pictures of more than 8
    # file of the encoder that makes a vector of each picture, from the site's directory or absolute
    encoder: str | None = None
    texts: tuple[str, ...] = ()  # a table's columns to read as texts, though they hold numbers
    # how a table is written (panas.data.files.dialect)
    dates: Dates = "iso"
    numbers: Numbers | None = None
    header: bool = True
    delimiter: Delimiter | None = None
    # how many samples (or groups) the data have, where that is no secret; None: runs plan with a
    # noised number
    samples: Annotated[int, Field(ge=1)] | None = None
    epsilon: Annotated[float, Field(gt=0)]  # of all runs together
    delta: Annotated[float, Field(gt=0, lt=1)]
    releases: tuple[str, ...] = allowed_releases(unprotected=False)  # what may leave, by name
    methods: tuple[str, ...] = ()  # what may run here; (): all that send no more than `releases`
    # the most that one run may ask for; None: what is left for life
    epsilon_per_run: Annotated[float, Field(gt=0)] | None = None
    # secure-sum: only runs whose server learns no more than a sum
    trust: Literal["server", "secure-sum"] = "server"
    # of any secure sum: how many sites it is over, at least, and how many of them its noise bears
    # to help the server or to be missing (t), at least
    secure_minimum: Annotated[int, Field(ge=3)] = 3
    secure_missing: Annotated[int, Field(ge=0)] = 0
    versions: tuple[str, ...] = ()  # of panas where a run is led, as 0.1 or 0.1.2; (): any
    allow_unprotected: bool = False  # let a run train or release without a bound
    # refuse a run whose samples another ledger was charged for; who leads it learns of the refusal
    strict: bool = False
    # what hubs may leave here: beginnings of runs in the ledger, and GiB below runs/
    run_limit: Annotated[int, Field(ge=1)] = 1000
    disk_limit: Annotated[float, Field(gt=0)] = 20.0
    # federations that the site takes part in, by a name of the owner's (dprbft.site.federations)
    federation: dict[Name, FederationShare] = Field(default_factory=dict)
    # where the node answers /metrics: HOST:PORT, or a path of a Unix socket; None: nowhere
    metrics: str | None = None
    metrics_budget: bool = False  # whether they show what the budget is, and what is left of it
    log_format: Literal["text", "json"] = "text"  # of what the node writes to stderr

    @property
    def table(self) -> TableColumns:
        """What columns of a table are."""
        dialect = Dialect(
            dates=self.dates, numbers=self.numbers, header=self.header, delimiter=self.delimiter
        )
        return TableColumns(label=self.label, group=self.group, texts=self.texts, dialect=dialect)

    @field_validator("methods")
    @classmethod
    def _known(cls, methods: tuple[str, ...]) -> tuple[str, ...]:
        names = tuple(name.replace("-", "_") for name in methods)
        if unknown := set(names) - set(method_names()):
            raise ValueError(f"to be of {', '.join(method_names())}, not {min(unknown)}")
        return names

    @field_validator("releases")
    @classmethod
    def _leaving(cls, releases: tuple[str, ...]) -> tuple[str, ...]:
        every = (*kind_names(), LABEL_HISTOGRAM, *method_names())  # updates are called by methods
        if unknown := set(releases) - set(every):
            raise ValueError(f"to be of {', '.join(every)}, not {min(unknown)}")
        return releases

    @field_validator("federation")
    @classmethod
    def _one_own(cls, federation: dict[str, FederationShare]) -> dict[str, FederationShare]:
        if sum(each.is_own for each in federation.values()) > 1:
            raise ValueError('one federation of folder ".", not two')
        return federation

    def takes_version(self, version: str) -> bool:
        """Whether a run led by this version of panas may be joined."""
        fits = (version == v or version.startswith(f"{v}.") for v in self.versions)
        return not self.versions or any(fits)

    def check_missing(self, missing: int) -> None:
        """BadInput if fewer sites than the owner asks for may help a secure sum's server (t)."""
        if missing < self.secure_missing:
            raise BadInput(
                f"expected a secure sum of which at least {self.secure_missing} sites may help "
                f"the server (t), as site.toml asks for, got {missing}; raise "
                "federation.secure_missing, or lower secure_missing there"
            )

    @property
    def budget(self) -> Budget:
        """For the data's whole life."""
        return Budget(self.epsilon, self.delta)

    def allotment(self, run: str) -> Allotment | None:
        """What all runs of the hub of this run may spend together; None: all that is left."""
        prefix = run.rpartition(":")[0]
        for name, each in self.federation.items():
            if each.epsilon and each.is_own != bool(prefix) and prefix in ("", name):
                return Allotment(name, prefix, Budget(each.epsilon, self.delta))
        return None


def write_site(
    folder: Path,
    settings: SiteSettings,
    *,
    facts: Facts | None = None,
    key: bytes | None = None,
) -> None:
    """Make a site's directory; BadInput if there is one.

    Args:
        folder: must not be there.
        settings: the owner's.
        facts: what the owner declares; None for a site of one run, which knows them.
        key: of the splits' hash, 32 secret bytes; None: drawn at random.
    """
    if settings_file(folder).exists():
        raise BadInput(f"expected a new site directory, got {folder}, which holds a site")
    write_bytes(key_file(folder), key or os.urandom(32))
    if facts:
        write_json(declared_file(folder), facts.to_json())
    empty = set() if settings.federation else {"federation"}  # so that lines can be added below
    text = tomli_w.dumps(settings.model_dump(exclude_none=True, exclude=empty))
    write_bytes(settings_file(folder), text.encode())


def site_ledger(folder: Path, run: str = "") -> Ledger:
    """The ledger of a site, for a run or none, which the site's key names before the first charge.

    So a site that has lost its ledger, or got a backup back from before, is told from a new one.
    The keys of a simulation follow from its seed, which many runs share, and name none.
    """
    settings = read_site(folder) if settings_file(folder).is_file() else None
    allotment = settings.allotment(run) if settings else None
    own = settings is not None and Path(settings.data).suffix != STORED
    if not own or not key_file(folder).is_file():
        return Ledger(ledger_file(folder), run, allotment=allotment)
    id = hashlib.sha256(b"ledger of " + read_bytes(key_file(folder))).hexdigest()[:32]
    return Ledger(ledger_file(folder), run, id, allotment)


def site_account(folder: Path, site: SiteSettings) -> Account:
    """What a site may spend and has spent; BadInput if its ledger is gone."""
    ledger = site_ledger(folder)
    if ledger.path.exists():
        return ledger.account()
    ledger.check_current()
    return Account(site.budget, False)


def read_site(folder: Path) -> SiteSettings:
    """A site's settings; BadInput if there is no site, or its file does not fit."""
    path = settings_file(folder)
    if not path.is_file():
        raise BadInput(
            f"expected a site with a {path.name} at {folder}, found none; `panas site init`"
        )
    try:
        return validated(SiteSettings, tomllib.loads(path.read_text()), str(path))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise BadInput(f"expected TOML in {path}, got a file that does not parse: {e}") from e


def data_path(folder: Path, settings: SiteSettings) -> Path:
    """Where a site's data are."""
    return folder / Path(settings.data).expanduser()
