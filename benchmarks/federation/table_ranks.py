"""Does a genome's fitness tell how accurate a table's student of it will be?

    python -m benchmarks.table_ranks --data-root DIR [--table digits] [--public 40] [--seed 2100]
        [--genomes 12] [--json]

One federation as in `benchmarks.table_students`. Random genomes are scored after the search's short
training, on rows made of public ones (what the product does) and on the public rows themselves.
Then two sites train a student of every genome in full. Rank correlation (Spearman) is between
fitness and the students' mean accuracy on the sites' test rows.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from scipy.stats import spearmanr

from benchmarks.runs import finished
from benchmarks.table_students import TABLES, config_of, write
from dprbft.methods.joined.inputs import learnt_from
from dprbft.methods.joined.state import JoinedState
from dprbft.methods.joined.student import answers_to, lessons_of, shared_teacher
from dprbft.methods.joined.student_search import HELD_OUT, MADE_ROWS
from dprbft.paths import read_sites
from dprbft.site.search import search_space
from dprbft.site.site import Site, open_site
from panas.architecture.genome import Genome
from panas.architecture.operators import random_genome
from panas.evolution.fitness import AgreementFitness
from panas.runtime.seeds import one_thread, stream
from panas.training.distillation import STUDENT, SoftSamples, distil, long_enough
from panas.training.evaluate import accuracy
from panas.training.made_rows import Layout, made_rows

SITES = 2  # that train students in full


def main() -> None:
    """Run, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--table", default="digits", choices=TABLES)
    parser.add_argument("--public", type=int, default=40)
    parser.add_argument("--seed", type=int, default=2100)
    parser.add_argument("--genomes", type=int, default=12)
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, one_thread():
        path = Path(folder) / "table.csv"
        write(path, a.table, a.data_root)
        with finished(config_of(path, a.public, a.seed), 1) as (run, _):
            sites = [open_site(paths) for paths in read_sites(run)[:SITES]]
            rows = scored(sites, a.genomes, a.seed)
    ranks = {how: rank_of([r[how] for r in rows], rows) for how in ("made", "public")}
    if a.json:
        print(json.dumps({"genomes": rows, "ranks": ranks}))
        return
    for r in sorted(rows, key=lambda r: -r["accuracy"]):
        print(f"{r['genome']:50} {r['made']:.3f} {r['public']:.3f} {r['accuracy']:.3f}")
    print(f"rank correlation: made rows {ranks['made']:.2f}, public rows {ranks['public']:.2f}")


def scored(sites: Sequence[Site], count: int, seed: int) -> list[dict[str, Any]]:
    """Both fitnesses of random genomes, and the mean accuracy of their students.

    Args:
        sites: that have joined.
        count: how many genomes.
        seed: of genomes, rows and weights.
    """
    first, rng = sites[0], stream(seed, "ranks")
    space = search_space(first.config, first.facts, None)
    genomes = dict.fromkeys(random_genome(space, rng) for _ in range(count))
    made, public = fitnesses(first, seed)
    lessons = [lesson(site) for site in sites]
    return [
        {
            "genome": str(genome),
            "made": made(genome),
            "public": public(genome),
            "accuracy": statistics.fmean(
                student(site, taught, genome) for site, taught in zip(sites, lessons, strict=True)
            ),
        }
        for genome in genomes
    ]


def fitnesses(site: Site, seed: int) -> tuple[AgreementFitness, AgreementFitness]:
    """The product's fitness on made rows, and the same on the public rows alone."""
    rng, inputs = stream(seed, "lessons"), learnt_from(site)
    ask = shared_teacher(site, JoinedState.read(site))
    order = torch.from_numpy(rng.permutation(len(inputs)))
    held, rest = order.tensor_split([max(1, round(HELD_OUT * len(inputs)))])
    parts = [inputs.take(at) for at in (rest, held)]
    layout = Layout.of(site.facts)
    made = [
        made_rows(part, layout, n, teacher=ask, rng=rng)
        for part, n in zip(parts, MADE_ROWS, strict=True)
    ]
    plain = [SoftSamples(part, ask(part.inputs())) for part in parts]
    search = site.config.search
    by = [
        AgreementFitness(
            taught=taught,
            held_out=held_out,
            histogram=torch.ones(site.spec.classes),
            spec=site.spec,
            optimizer=long_enough(search.optimizer, len(taught), search.student_steps),
            seed=seed,
            site=site.id,
        )
        for taught, held_out in (made, plain)
    ]
    return by[0], by[1]


def lesson(site: Site) -> SoftSamples:
    """What a student of the site learns."""
    lessons = lessons_of(site, learnt_from(site))
    return SoftSamples(lessons.samples, answers_to(site, JoinedState.read(site), lessons))


def student(site: Site, taught: SoftSamples, genome: Genome) -> float:
    """Accuracy on the site's test rows of a student that was trained in full."""
    rng = stream(site.config.seed, "ranks", site.id, str(genome))
    bottom, head = site.spec.network(genome, rng)
    config = long_enough(STUDENT, len(taught), site.config.training.student_steps)
    config = replace(config, train_head=site.spec.head_moves)
    distil(bottom, head, taught, config=config, rng=rng)
    return accuracy(bottom, head, site.data.test)


def rank_of(values: Sequence[float], rows: Sequence[dict[str, Any]]) -> float:
    """Spearman's correlation of fitnesses with the students' accuracy."""
    return float(spearmanr(values, [r["accuracy"] for r in rows]).statistic)


if __name__ == "__main__":
    main()
