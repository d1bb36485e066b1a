"""The files of a run directory: a contract with whoever reads one."""

from collections.abc import Callable
from pathlib import Path


def _file(name: str) -> Callable[[Path], Path]:
    return lambda run: run / name


def _client_file(name: str) -> Callable[[Path, int], Path]:
    """`name` with the client's number, or the round's."""
    return lambda run, client: run / name.format(client)


rounds_file = _file("rounds.jsonl")  # one line a finished round
stages_file = _file("stages.json")  # which stages are done, and the seconds each took
sites_folder = _file("sites")  # a folder a client: a simulation's sites
summary_file = _file("summary.json")  # the outcome of the run
checkpoint_folder = _file("checkpoint")  # what it takes to resume after the last finished round
latest_file = _file("checkpoint/latest.json")  # its number
latency_file = _file("search/latency.json")  # how long blocks take, where latency is limited
round_folder = _client_file("checkpoint/round-{:03d}")

ledger_file = _client_file("sites/client-{:03d}/ledger.jsonl")  # what a client's data have spent

search_file = _client_file("search/client-{:03d}/best.json")  # the architecture and its cost
search_log = _client_file("search/client-{:03d}/log.jsonl")  # a line a finished generation
histogram_file = _client_file("search/client-{:03d}/histogram.json")  # noised label histogram
history_picture = _client_file("search/client-{:03d}/history.png")  # `panas.plots.search.history`
network_picture = _client_file("search/client-{:03d}/network.png")  # `panas.plots.network.drawing`

tune_file = _client_file("tune/client-{:03d}/best.json")  # DP-SGD settings, and every trial
tune_log = _client_file("tune/client-{:03d}/log.jsonl")  # a line a finished trial
trials_picture = _client_file("tune/client-{:03d}/trials.png")  # `panas.plots.tuning.trials`

release_file = _client_file("releases/client-{:03d}.safetensors")  # the last, as it was sent
model_file = _client_file("models/client-{:03d}.safetensors")  # the one that validation selected
# That of the last round, whose bottom computed the last release.
last_model_file = _client_file("models/client-{:03d}-last.safetensors")

audit_file = _file("audit.json")  # what attacks on the releases have found
audit_pictures = _file("audit")  # reconstructions beside private samples
audit_unfinished = _file("audit/unfinished")  # where an audit goes on that was interrupted
