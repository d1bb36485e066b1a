"""What the server of FEATHERS keeps beside the network."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from baselines.common.bandit import Course
from baselines.joint_search.settings import Stage


@dataclass(frozen=True, kw_only=True)
class ServerState:
    """Where the search stands after a round."""

    round: int  # the last whole one
    stage: Stage
    course: Course
    architecture: Mapping[str, Any] | None
    trace: Sequence[Sequence[Any]]  # round, stage, phase, setting's number, reward or None

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {**asdict(self), "course": self.course.to_json()}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "ServerState":
        """Read back `to_json`."""
        return ServerState(**{**record, "course": Course.from_json(record["course"])})
