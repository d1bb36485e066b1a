"""What students cost to search, for one site and for many, and what they bring.

    python -m benchmarks.students --data-root DIR [--seeds 5] [--workers 2] [--plot FILE] [--json]

A federation joins as in `benchmarks.joining` (`benchmarks.students_world`). One search, with all
classes alike, serves all sites: each takes what agrees best with the shared head in its own
frequencies. A student may take a tenth (`--macs`) of the multiply-accumulates of phi and its heads.

| line | what is compared |
|---|---|
| cost of K sites | sample-passes, and seconds, of all sites' searches, over those of one |
| price of K students | seconds of training those of a genome for K sites, over that of one site |
| over apart | the pick, against that of a search for the site by itself, in its own frequencies |
| over random | the pick, against a random genome of within 15 % of its multiply-accumulates |
| below predictor | the site's predictor, against the student that is taught in full |

Accuracies are of test samples in the site's true mix. The first three lines train a genome as the
search does; "taught in full" is the product's: the shared head's answers once for all sites, from
the search's weights, then the shared head's with residual.
Predictors average heads and residual, without the student. For the cost, sites beyond the
federation's four have a mix, and the same shared head. Gains are in points, paired, means of a
seed's sites, with their standard error over seeds. Settings are the product's.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.kept import kept
from benchmarks.students_world import SETTING, Federation, joined
from dprbft.methods.joined.student_search import search_in_common
from panas.architecture.cost import cost
from panas.architecture.genome import Genome
from panas.architecture.operators import plain_genome, random_genome
from panas.architecture.space import SearchSpace
from panas.evolution.fitness import AgreementFitness, chosen_for
from panas.evolution.records import EvolutionConfig, EvolutionResult
from panas.evolution.surrogate import prior_of
from panas.evolution.toolbox import SearchProblem
from panas.runtime.seeds import one_thread, stream

FIRST_SEED = 1000
EVOLUTION = EvolutionConfig(population=6, generations=3)  # of the preset `sound`
SITES = (1, 10, 100)
APART = 1  # sites of a seed that are searched for apart, too
SIMILAR = 0.15  # how far a random genome may be from the pick's multiply-accumulates
DRAWS = 10_000  # of a genome, at most
FRONT = 4  # genomes of a search whose accuracy is shown


def one(root: str, task: tuple[int, float]) -> dict[str, Any]:
    """One seed: what its searches cost, and what they found."""
    seed, share = task
    with one_thread(), tempfile.TemporaryDirectory() as folder:
        f = joined(root, seed)
        space, alike = f.space(round(share * f.macs)), f.fitness(Path(folder))
        rng = stream(seed, "students", "mixes")
        mixes = [site.mix for site in f.world.sites]
        more = [rng.dirichlet(np.full(f.world.classes, SETTING.alpha)) for _ in range(max(SITES))]
        mixes = (mixes + [torch.from_numpy(mix) for mix in more])[: max(SITES)]
        result, costs = together(space, alike, mixes)
        price = price_of_students(f, alike, result.best)
        sites = [site_of(f, at, space, alike, result) for at in range(len(f.world.sites))]
        return {
            "cost": costs,
            "price": price,
            "macs": f.macs,
            "genomes": len({site["genome"] for site in sites}),
            "sites": sites,
            "front": front(f, alike, result),
        }


def search(space: SearchSpace, fitness: AgreementFitness) -> EvolutionResult:
    """As a site searches."""
    problem = SearchProblem(space, fitness, None, prior_of(space.shape), plain_genome(space))
    rng = stream(fitness.seed, "students")
    return search_in_common(problem, fitness, config=EVOLUTION, rng=rng)


def together(
    space: SearchSpace, alike: AgreementFitness, mixes: Sequence[torch.Tensor]
) -> tuple[EvolutionResult, list[dict[str, float]]]:
    """The search of all sites, one after the other; its cost so far at each of `SITES`."""
    passes, begin, costs = 0, time.perf_counter(), list[dict[str, float]]()
    for site, mix in enumerate(mixes):
        result = search(space, replace(alike, site=site))
        passes += result.passes
        chosen_for(result, in_mix(alike, mix, site), plain_genome(space))
        if site + 1 in SITES:
            seconds = time.perf_counter() - begin
            costs.append({"sites": site + 1, "passes": passes, "seconds": seconds})
    return result, costs


def price_of_students(f: Federation, alike: AgreementFitness, genome: Genome) -> float:
    """What students of the most sites cost, over one site's, all of a genome.

    One of them is trained as a site of few does, which takes longer.
    """
    begin = time.perf_counter()
    f.student(0, genome, alike)
    one = time.perf_counter() - begin
    f.teach_last_layers(max(SITES), genome, alike)
    return (time.perf_counter() - begin) / one


def in_mix(fitness: AgreementFitness, mix: torch.Tensor, site: int) -> AgreementFitness:
    """The fitness of a site by itself."""
    return replace(fitness, histogram=(SETTING.n * mix).float(), site=site)


def site_of(
    f: Federation,
    at: int,
    space: SearchSpace,
    alike: AgreementFitness,
    found: EvolutionResult,
) -> dict[str, Any]:
    """What a site's student is, and what it is compared with."""
    own = replace(alike, histogram=f.world.sites[at].histogram, site=at)
    judge = f.judge(alike, f.world.sites[at].mix)
    pick = chosen_for(found, own, plain_genome(space)).best
    chance = of_size(space, cost(pick, f.spec).macs, stream(f.seed, "chance", at), f)
    lone = search(space, own).best if at < APART else None
    teacher, student = f.student(at, pick, alike)
    return {
        "genome": str(pick),
        "parameters": cost(pick, f.spec).parameters,
        "macs": cost(pick, f.spec).macs,
        "pick": judge(pick),
        "apart": None if lone is None else judge(lone),
        "random": judge(chance),
        "predictor": f.predictor(at),
        "teacher": teacher,
        "student": student,
    }


def of_size(space: SearchSpace, macs: int, rng: np.random.Generator, f: Federation) -> Genome:
    """A random genome of about so many multiply-accumulates."""
    for _ in range(DRAWS):
        genome = random_genome(space, rng)
        if abs(cost(genome, f.spec).macs - macs) <= SIMILAR * macs:
            return genome
    raise AssertionError(f"none of {DRAWS} random genomes has about {macs} multiply-accumulates")


def front(f: Federation, alike: AgreementFitness, found: EvolutionResult) -> list[dict[str, Any]]:
    """What no other candidate beats in agreement and multiply-accumulates, smallest first."""
    chosen, best = list[Genome](), -1.0
    trained = [e for e in found.history if e.trained]
    for e in sorted(trained, key=lambda e: (cost(e.genome, f.spec).macs, -e.fitness)):
        if e.fitness > best:
            chosen, best = [*chosen, e.genome], e.fitness
    return [
        {
            "genome": str(genome),
            "parameters": cost(genome, f.spec).parameters,
            "macs": cost(genome, f.spec).macs,
            "accuracy": [f.judge(alike, site.mix)(genome) for site in f.world.sites],
        }
        for genome in chosen[-FRONT:]
    ]


def main() -> None:
    """Run what the folder lacks, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", required=True, help="folder of FashionMNIST")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--macs", type=float, default=0.1, help="share of the predictor's")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "panas-students")
    parser.add_argument("--plot", type=Path, help="where to draw the front")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    tasks = [(seed, a.macs) for seed in range(a.first_seed, a.first_seed + a.seeds)]
    runs = kept(a.work, "students", {}, one, a.data_root, tasks, workers=a.workers)
    if a.plot:
        draw(runs, a.plot)
    if a.json:
        print(json.dumps({"found": summary(runs), "runs": runs}))
        return
    print(table(summary(runs)))
    print(front_table(runs[0]))


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """Each line's mean over seeds, with its standard error."""
    result: dict[str, list[float]] = {}

    def of_sites(name: str, value: Any, run: Mapping[str, Any]) -> None:
        values = [v for site in run["sites"] if (v := value(site)) is not None]
        result.setdefault(name, []).append(statistics.fmean(values))

    for run in runs:
        first, *rest = run["cost"]
        for c in rest:
            for what in ("passes", "seconds"):
                ratio = c[what] / first[what]
                result.setdefault(f"cost of {c['sites']} sites, {what}", []).append(ratio)
        result.setdefault(f"price of {max(SITES)} students", []).append(run["price"])
        result.setdefault("passes of one site", []).append(first["passes"])
        result.setdefault("seconds of one site", []).append(first["seconds"])
        for name, rival in (("over apart", "apart"), ("over random", "random")):
            of_sites(name, lambda s, r=rival: s[r] and 100 * (s["pick"] - s[r]), run)
        for name in ("predictor", "teacher", "student"):
            of_sites(name, lambda s, n=name: 100 * s[n], run)
        of_sites("below predictor", lambda s: 100 * (s["predictor"] - s["student"]), run)
        of_sites("below teacher", lambda s: 100 * (s["teacher"] - s["student"]), run)
        of_sites("share of its MACs", lambda s, m=run["macs"]: s["macs"] / m, run)
        of_sites("parameters", lambda s: s["parameters"], run)
        result.setdefault("genomes of four sites", []).append(run["genomes"])
    return {name: _mean(values) for name, values in result.items()}


def table(found: Mapping[str, tuple[float, float]]) -> str:
    """The lines of a summary."""
    lines = [f"{name:28}{mean:12,.3f} +- {error:.3f}" for name, (mean, error) in found.items()]
    return "\n".join(lines)


def front_table(run: Mapping[str, Any]) -> str:
    """The front of one seed, beside what the sites predict with."""
    lines = [f"\n{'the first seed':44}{'parameters':>11}{'MACs':>9}  accuracy at each site"]
    rows = [(r["genome"], r["parameters"], r["macs"], r["accuracy"]) for r in run["front"]]
    for s in run["sites"]:
        rows.append((f"{s['genome']}, in full", s["parameters"], s["macs"], [s["student"]]))
    rows += [("phi with its heads", "", run["macs"], [s["predictor"] for s in run["sites"]])]
    for name, parameters, macs, accuracy in rows:
        shown = " ".join(f"{x:.3f}" for x in accuracy)
        lines.append(f"{name:44}{parameters:>11}{macs:>9,}  {shown}")
    return "\n".join(lines)


def draw(runs: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Accuracy against multiply-accumulates: students and predictors."""
    from matplotlib.figure import Figure  # here: importing it takes a second

    figure = Figure(figsize=(6, 4), layout="constrained")
    ax = figure.subplots()
    names = "searched", "taught in full", "phi with its heads"
    points: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for run in runs:
        points["searched"] += [(r["macs"], statistics.fmean(r["accuracy"])) for r in run["front"]]
        for site in run["sites"]:
            points["taught in full"].append((site["macs"], site["student"]))
            points["phi with its heads"].append((run["macs"], site["predictor"]))
    for (name, result), marker in zip(points.items(), "o^s", strict=True):
        ax.scatter(*zip(*result, strict=True), label=name, marker=marker, alpha=0.7)
    ax.set_xscale("log")
    ax.set_xlabel("multiply-accumulates a sample")
    ax.set_ylabel("accuracy in the site's mix")
    ax.legend()
    figure.savefig(path, dpi=120)


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return statistics.fmean(values), error


if __name__ == "__main__":
    main()
