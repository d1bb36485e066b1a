"""Deaths of a site or of the server at a chosen call of a function, before or after its work.

As a script, it carries out a run of two sites in two worker processes, in which the process of the
side that is to die kills itself; each worker runs this module, too, and so plants the death.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from dprbft.config.schema import RunConfig
from dprbft.engines.inprocess import InProcess
from dprbft.engines.protocol import Engine
from dprbft.messages import Verb
from dprbft.methods import serve as verbs
from dprbft.paths import read_sites
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.stages import search_stage, train_stage, tune_stage

STATE = "dprbft.methods.rounds.state:State.write"
VERBS = "dprbft.methods.rounds.site:"
SERVER = "dprbft.server.checkpoint:ServerFiles."


@dataclass(frozen=True)
class Death:
    """Where a process dies."""

    at: str  # "module:name" of the function
    verb: str | None = None  # only calls while a site answers to this count; None: any call
    call: int = 1  # the k-th such call
    after: bool = False  # whether the function does its work before
    lost: int = 0  # charges of one site that are made again

    def __str__(self) -> str:
        when = "after" if self.after else "before"
        name = self.at.rpartition(":")[2].rpartition(".")[2]
        return f"{when}-{name}-{self.call}" + (f"-of-{self.verb}" if self.verb else "")


class Stop(BaseException):
    """A death that no handler of the package knows."""


def die(*_: object) -> None:
    """A death."""
    raise Stop


Set = Callable[[Any, str, Any], None]
Stage = Callable[[OpenRun], object]


def plant(death: Death, die: Callable[[], None], put: Set = setattr) -> None:
    """Let `die` be called where a death says; `put` replaces an attribute or an item."""
    module, _, path = death.at.partition(":")
    owner: Any = import_module(module)
    *parts, name = path.split(".")
    for part in parts:
        owner = getattr(owner, part)
    original, count, asked = getattr(owner, name), [0], [None]

    def dying(*args: Any, **named: Any) -> Any:
        count[0] += death.verb in (None, asked[0])
        now = count[0] == death.call and death.verb in (None, asked[0])
        if now and not death.after:
            die()
        result = original(*args, **named)
        if now and death.after:
            die()
        return result

    def answering(verb: Verb, answer: Callable[..., bytes]) -> Callable[..., bytes]:
        def noted(*args: Any) -> bytes:
            asked[0] = verb
            return answer(*args)

        return noted

    put(owner, name, dying)
    families = {
        family: {verb: answering(verb, answer) for verb, answer in answers.items()}
        for family, answers in verbs.VERBS.items()
    }
    put(verbs, "VERBS", families)


@contextmanager
def dies(death: Death) -> Iterator[None]:
    """A block that dies in this process; nothing that it does in a `finally` reaches a site."""
    with pytest.MonkeyPatch.context() as planted:

        def end() -> None:
            planted.setattr(InProcess, "call", lambda *_: iter(()))
            raise Stop

        plant(death, end, planted.setattr)
        with pytest.raises(Stop):
            yield


def carry_out(run: Path, config: RunConfig, engine: Engine) -> None:
    """Search, tune and train, from wherever a run is."""
    for stage in (search_stage, tune_stage, train_stage):
        stage(OpenRun(run, config, engine))


def die_in(run: Path, config: RunConfig, death: Death, stage: Stage = train_stage) -> None:
    """Carry a run on until a death, in this process."""
    prepare(run, config, resume=True)
    with dies(death), InProcess(read_sites(run), 1) as engine:
        stage(OpenRun(run, config, engine))


def kill_once(run: Path) -> None:
    """Kill this process, if no other has been killed before."""
    try:
        (run.parent / "killed").touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def arguments(run: Path, config: RunConfig, death: Death) -> list[str]:
    """The command that carries out a run in which a process is killed."""
    told = [str(run), config.model_dump_json(), json.dumps(asdict(death))]
    return [sys.executable, __file__, *told]


def main(run: Path, config: RunConfig) -> None:
    prepare(run, config, resume=False)
    with InProcess(read_sites(run), 2) as engine:
        carry_out(run, config, engine)


if __name__ in ("__main__", "__mp_main__"):
    folder, planned = Path(sys.argv[1]), Death(**json.loads(sys.argv[3]))
    if planned.at.startswith(("dprbft.server", "dprbft.run")) == (__name__ == "__main__"):
        plant(planned, lambda: kill_once(folder))
    if __name__ == "__main__":
        main(folder, RunConfig.model_validate_json(sys.argv[2]))
