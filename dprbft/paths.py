"""The files of a run and of its sites: a contract with whoever reads them.

A run's directory holds what the server has, and of a simulation the sites too; a site's directory
(`SitePaths`) holds everything else, in a folder `runs/NAME/` a run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from panas.runtime.errors import BadInput
from panas.runtime.store import read_json, write_json


def _file(name: str) -> Callable[[Path], Path]:
    return lambda folder: folder / name


CANDIDATES = "candidates"
"""Folder beside the common map: what searches and rehearsals have learnt of public samples."""

# In a run's directory.
config_file = _file("config.toml")
sites_file = _file("sites.json")  # where its sites are
sites_folder = _file("sites")  # those of a simulation
facts_file = _file("facts.json")  # what is public of the federation's data
public_file = _file("public.safetensors")  # samples that everybody may see
unlabelled_file = _file("unlabelled.safetensors")  # such without labels
map_file = _file("map.safetensors")  # the common feature map, where the method has one
stages_file = _file("stages.json")  # which stages are done, and the seconds each took
summary_file = _file("summary.json")  # the outcome of the run
ladder_picture = _file("ladder.png")  # `panas.plots.ladder`
pooled_file = _file("pooled.json")  # accuracies of exact pooling, which only a simulator knows
through_file = _file("server/sites.json")  # what sites elsewhere are through with
server_folder = _file("server")  # what the server received and answered, round by round
audit_file = _file("audit.json")  # what attacks on the releases have found
audit_pictures = _file("audit")  # reconstructions beside private samples
audit_unfinished = _file("audit/unfinished")  # where an audit goes on that was interrupted

# In the server's folder.
latest_file = _file("latest.json")  # the number of the last whole round
rounds_file = _file("rounds.jsonl")  # one line a finished round
refused_file = _file("refused.jsonl")  # one line a reply that was refused, without its content
traffic_file = _file("traffic.json")  # bytes that a carrier brought to sites and back, by verb

# In a site's directory.
settings_file = _file("site.toml")  # its data, its lifetime budget, what may leave
declared_file = _file("facts.json")  # what its owner declares of its data
ledger_file = _file("ledger.jsonl")  # what all its runs have spent
key_file = _file("split.key")  # of the hash that says which split a sample is in

# In either: what an encoder makes of pictures, of a site's own in its directory alone.
embeddings_folder = _file("embeddings")

# In a site's folder for a run, its home there.
hello_file = _file("run.json")  # what the run told it: settings and public facts
book_file = _file("book.json")  # the ledger's head after the last verb
samples_file = _file("samples.json")  # a digest of those that were looked back at
seen_file = _file("seen.json")  # what its samples have cost in other ledgers
refusal_file = _file("refused.json")  # why it refused; the wire carries a code alone
failed_file = _file("failed.json")  # what went wrong on private samples, which no hub hears of
search_file = _file("search/best.json")  # the architecture and its cost
search_log = _file("search/log.jsonl")  # a line a finished generation
candidates_file = _file("search/candidates.json")  # how many so far; only while it runs
histogram_file = _file("search/histogram.json")  # noised label histogram
count_file = _file("count.json")  # noised number of training samples
latency_file = _file("search/latency.json")  # how long blocks take, where latency is limited
history_picture = _file("search/history.png")  # `panas.plots.search.history`
network_picture = _file("search/network.png")  # `panas.plots.network.drawing`
tune_file = _file("tune/best.json")  # DP-SGD settings, and every trial
tune_log = _file("tune/log.jsonl")  # a line a finished trial
trials_picture = _file("tune/trials.png")  # `panas.plots.tuning.trials`
sum_file = _file("secure_sum.safetensors")  # its part in a secure sum; holds secrets
sum_refusals_file = _file("secure_sum.refused.jsonl")  # unmaskings that it refused
state_file = _file("state.safetensors")  # where it stands after its last round
scores_file = _file("rounds.jsonl")  # accuracies of each of its rounds; they never leave
report_file = _file("report.json")  # how its network does, and what that must beat
predictor_file = _file("models/predictor.safetensors")  # all that a site predicts with (joined)
# That of the last round, whose bottom computed the last release.
last_model_file = _file("models/last.safetensors")


def model_file(home: Path) -> Path:
    """A site's network; where an older version has written one, under the name that it had."""
    older, file = home / "models/kept.safetensors", home / "models/network.safetensors"
    return older if older.is_file() and not file.is_file() else file


def round_folder(server: Path, round: int) -> Path:
    """What the server received and answered in a round."""
    return server / f"round-{round:03d}"


def sum_folder(server: Path, round: int) -> Path:
    """What the server knows of a secure sum: keys, masked vectors, and the sum."""
    return round_folder(server, round) / "secure-sum"


def arrived_file(server: Path, round: int, site: int) -> Path:
    """A site's masked vector, as it arrived.

    Args:
        server: folder of the server in the run.
        round: of the secure sum, from 1.
        site: number of the site.
    """
    return sum_folder(server, round) / f"masked-{site:04d}.safetensors"


def sent_file(home: Path, round: int) -> Path:
    """What a site released in a round, as it was sent."""
    return home / f"releases/round-{round:03d}.safetensors"


def masked_file(home: Path, round: int) -> Path:
    """What a site sent in a round of which only the sum over sites is seen."""
    return home / f"releases/round-{round:03d}.masked.safetensors"


@dataclass(frozen=True)
class SitePaths:
    """A site of a run: its number there, its name, its directory, and what it calls the run."""

    index: int
    name: str
    folder: Path
    run: str

    @property
    def asked(self) -> str:
        """What the hub calls the run: without the federation's name, which the site puts before."""
        return self.run.rpartition(":")[2]

    @property
    def home(self) -> Path:
        """The site's folder for this run."""
        return self.folder / "runs" / self.run

    @property
    def is_present(self) -> bool:
        """Whether the site's directory is where it should be."""
        return settings_file(self.folder).is_file()


def write_sites(run: Path, site_paths: Sequence[SitePaths]) -> None:
    """Note where a run's sites are; those inside the run's directory move along with it."""
    sites = [
        {
            "name": p.name,
            "folder": str(p.folder.relative_to(run) if p.folder.is_relative_to(run) else p.folder),
            "run": p.run,
        }
        for p in site_paths
    ]
    write_json(sites_file(run), {"sites": sites})


def read_sites(run: Path) -> tuple[SitePaths, ...]:
    """Where a run's sites are, by their number.

    BadInput without a run, or if its sites are elsewhere.
    """
    path = sites_file(run)
    if not path.is_file():
        raise BadInput(
            f"expected a run directory with a {path.name} at {run}, found none; check the path"
        )
    if is_hub(run):
        raise BadInput(
            f"expected a run whose sites are on this machine, got {run}, a hub's: their data, "
            "ledgers and accuracies stay with them; ask there, or simulate the federation"
        )
    return _sites(run, path.stat().st_mtime_ns)


def is_hub(run: Path) -> bool:
    """Whether the sites of a run are elsewhere."""
    path = sites_file(run)
    return path.is_file() and "remote" in read_json(path)


def write_remote(run: Path, names: Sequence[str]) -> None:
    """Note the names of sites that are elsewhere."""
    write_json(sites_file(run), {"remote": list(names)})


@lru_cache(maxsize=8)
def _sites(run: Path, changed: int) -> tuple[SitePaths, ...]:
    sites = enumerate(read_json(sites_file(run))["sites"])
    return tuple(SitePaths(i, s["name"], run / s["folder"], s["run"]) for i, s in sites)


def home(run: Path, index: int) -> Path:
    """The folder of the site with this number for a run."""
    return read_sites(run)[index].home
