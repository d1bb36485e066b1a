"""What the search and tuning of a site leave: the `best.json` in its folders."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from dprbft.paths import search_file, tune_file
from panas.architecture.cost import Cost, LayerCost
from panas.architecture.genome import Genome
from panas.architecture.network import NetworkSpec
from panas.evolution.records import Evaluation, EvolutionResult, GenerationRecord
from panas.runtime.store import read_json, write_json
from panas.tuning.space import DPSGDSettings
from panas.tuning.trial import TrialRecord

ByRule = Literal[
    "no noise", "given noise", "few public samples", "no trials", "other size", "none better"
]
PLANNED_NOISE = 1e-6
"""Stands for a noise multiplier that is left to the plan; it is never used as one."""


TRUNK = "encoder's first layers"  # their line of a cost table


@dataclass(frozen=True, kw_only=True)
class SearchRecord:
    """A site's architecture, and how it was found."""

    site: int
    mode: str  # of the search (`panas.search_modes`)
    histogram: list[float] | None  # noised, of labels, that the search followed; None without one
    result: EvolutionResult = field(repr=False)
    cost: Cost  # of the winner's network
    cost_table: list[LayerCost] = field(repr=False)  # the same by layer, a trunk's first

    @property
    def genome(self) -> Genome:
        """The winner."""
        return self.result.best

    @property
    def fitness(self) -> float:
        """The winner's fitness."""
        return self.result.fitness

    def spec_from(self, spec: NetworkSpec) -> NetworkSpec:
        """What the genome's blocks read, where `spec` says what the whole network reads."""
        if self.trunk is None:
            return spec
        c, h, w = self.trunk.out_shape
        return replace(spec, shape=(c, h, w))

    @property
    def trunk(self) -> LayerCost | None:
        """The encoder's layers that the network begins with, where it does."""
        return self.cost_table[0] if self.cost_table[0].name == TRUNK else None

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON."""
        r = self.result
        return {
            "client": self.site,
            "genome": str(r.best),
            "blocks": r.best.to_json(),
            "fitness": r.fitness,
            "cost": asdict(self.cost),
            "cost_table": [asdict(row) for row in self.cost_table],
            "evaluations": r.evaluations,
            "passes": r.passes,
            "privacy": self.mode,
            "histogram": self.histogram,
            "front": [[str(g), *rest] for g, *rest in r.front],
            "logbook": [g.to_json() for g in r.records],
            "history": [e.to_json() for e in r.history],
        }

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "SearchRecord":
        """Read back what `to_json` made."""
        r = record
        result = EvolutionResult(
            best=Genome.parse(r["genome"]),
            fitness=r["fitness"],
            records=[GenerationRecord.from_json(g) for g in r["logbook"]],
            history=[Evaluation.from_json(e) for e in r["history"]],
            passes=r["passes"],
            front=[(Genome.parse(g), accuracy, size) for g, accuracy, size in r["front"]],
        )
        layers = ({**row, "out_shape": tuple(row["out_shape"])} for row in r["cost_table"])
        return SearchRecord(
            site=r["client"],
            mode=r["privacy"],
            histogram=r["histogram"],
            result=result,
            cost=Cost(**r["cost"]),
            cost_table=[LayerCost(**layer) for layer in layers],
        )

    def write(self, home: Path) -> None:
        """Write the record to its place in a site's folder."""
        write_json(search_file(home), self.to_json())

    @staticmethod
    def read(home: Path) -> "SearchRecord":
        """The record in a site's folder; BadInput if it was not searched for."""
        return SearchRecord.from_json(read_json(search_file(home)))


@dataclass(frozen=True, kw_only=True)
class TuningRecord:
    """A site's DP-SGD settings, and how they were found."""

    site: int
    settings: DPSGDSettings  # a noise multiplier of `PLANNED_NOISE` is left to the plan
    predicted: float | None = None  # accuracy that the surrogate expects; None if nothing was tuned
    trials: tuple[TrialRecord, ...] = field(default=(), repr=False)
    best: DPSGDSettings | None = None  # the winner of trials that were made at simulated sites
    refused: str | None = None  # why the budget affords no settings
    nothing: bool = False  # whether rehearsals say that DP-SGD brings nothing here
    by_rule: ByRule | None = None  # why a residual's settings are those of the rule

    @property
    def noise_multiplier(self) -> float | None:
        """That of the settings; None if it is left to the plan."""
        noise = self.settings.noise_multiplier
        return None if noise == PLANNED_NOISE else noise

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON."""
        record = {
            "client": self.site,
            "setting": asdict(self.settings) | {"noise_multiplier": self.noise_multiplier},
            "predicted": self.predicted,
            "trials": [asdict(trial) for trial in self.trials],
        }
        record |= {"best": asdict(self.best)} if self.best else {}
        record |= {"nothing": True} if self.nothing else {}
        record |= {"by_rule": self.by_rule} if self.by_rule else {}
        return record if self.refused is None else record | {"refused": self.refused}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> "TuningRecord":
        """Read back what `to_json` made."""
        setting = record["setting"]
        if setting["noise_multiplier"] is None:
            setting = setting | {"noise_multiplier": PLANNED_NOISE}
        return TuningRecord(
            site=record["client"],
            settings=DPSGDSettings(**setting),
            predicted=record["predicted"],
            trials=tuple(TrialRecord.from_json(trial) for trial in record["trials"]),
            best=DPSGDSettings(**record["best"]) if "best" in record else None,
            refused=record.get("refused"),
            nothing=record.get("nothing", False),
            by_rule=record.get("by_rule"),
        )

    def write(self, home: Path) -> None:
        """Write the record to its place in a site's folder."""
        write_json(tune_file(home), self.to_json())

    @staticmethod
    def read(home: Path) -> "TuningRecord":
        """The record in a site's folder; BadInput if it was not tuned."""
        return TuningRecord.from_json(read_json(tune_file(home)))
