"""Is joining on a public encoder near what a site could have at home without privacy? Whole runs.

    python -m benchmarks.at_home --encoder FILE --dataset FILE|FOLDER [--seeds 5] [--start 2000]
        [--epsilon 8] [--clients 4] [--alpha 0.5] [--limit 1600] [--public 0.1] [--labelled 40]
        [--workers 2] [--set SECTION.KEY=JSON ...] [--json]
    python -m benchmarks.at_home --make FOLDER --cifar FOLDER [--pictures 600]

Models at home read the embeddings of a site's own training and validation samples, and of the
labelled public ones, without privacy: a random forest, a logistic regression, and a regression
whose penalty the validation samples choose. "At home" is, at each seed, the most accurate of these
three in the mean of the sites: they are chosen by test accuracy, in their favour. All accuracies
are means over sites on their test samples, paired by seed, with standard errors over seeds. `--set`
changes a setting, as `search.population=2`.

The second command writes a folder of JPEGs of 224 x 224 for each class, so many of each, from the
CIFAR-10 that torchvision reads.
"""

import argparse
import json
import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from PIL import Image
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.runs import finished
from benchmarks.vectors import table
from dprbft.config.files import build_config
from dprbft.run.outcome import outcome
from dprbft.run.view import RunView
from dprbft.site.data import SiteData
from panas.data.samples import Samples, concat
from panas.runtime.seeds import stream
from panas.training.baselines import features, fit_baselines

PENALTIES, STEPS = np.logspace(-5, 1, 7), 1000
POINTS = 3.0
"""Points below the models at home that a run may be."""
SIDE, QUALITY = 224, 90  # of a JPEG
HOME = ("forest at home", "regression at home", "tuned regression at home")


def make_folders(cifar: Path, folder: Path, each: int) -> None:
    """Write JPEGs of so many pictures of each class, drawn by a fixed seed.

    Args:
        cifar: torchvision's root of CIFAR-10.
        folder: that is made.
        each: pictures of a class.
    """
    from torchvision.datasets import CIFAR10

    data, rng = CIFAR10(str(cifar), train=True), stream(0, "benchmark", "at home")
    y = np.array(data.targets)
    for c, name in enumerate(data.classes):
        (folder / name).mkdir(parents=True)
        for i in np.sort(rng.choice(np.flatnonzero(y == c), each, replace=False)):
            image = Image.fromarray(data.data[i]).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
            image.save(folder / name / f"{i:05d}.jpg", quality=QUALITY)


def at_home(site: SiteData, public: Samples) -> dict[str, float]:
    """Test accuracies of models that read a site's embeddings without privacy."""
    public, train, valid, test = (
        replace(part, groups=None, part=None)
        for part in (public, site.train, site.validation, site.test)
    )
    fitted = fit_baselines([public, train, valid], "public and own", 0)
    if not fitted.models:  # one class
        share = float((test.y == train.y[0]).double().mean())
        return dict.fromkeys(HOME, share)
    forest, regression = (float(rival.accuracy) for rival in fitted.rivals(test))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tuned = tuned_regression([public, train], valid)
    right = tuned.predict(features(test)) == test.y.numpy()
    return dict(zip(HOME, (forest, regression, float(right.mean())), strict=True))


def tuned_regression(train: Sequence[Samples], valid: Samples) -> Pipeline:
    """A regression of all samples, with the penalty that suits validation samples best.

    Args:
        train: sets, of which empty ones are left out.
        valid: that choose the penalty.
    """
    known = [part for part in train if len(part)]
    x, y = _arrays(concat(known))
    best = PENALTIES[0]
    if len(np.unique(y)) > 1:
        models = [_regression(penalty).fit(x, y) for penalty in PENALTIES]
        best = PENALTIES[int(np.argmin([_loss(model, valid) for model in models]))]
    return _regression(best).fit(*_arrays(concat([*known, valid])))


def _regression(penalty: float) -> Pipeline:
    return make_pipeline(StandardScaler(), LogisticRegression(C=penalty, max_iter=STEPS))


def _loss(model: Pipeline, samples: Samples) -> float:
    """Mean -log p of the samples; a class that the model has not seen has next to none."""
    p = np.full((len(samples), samples.classes), 1e-6)
    p[:, model.classes_] = model.predict_proba(features(samples)).clip(1e-6)
    p /= p.sum(1, keepdims=True)
    return float(log_loss(samples.y.numpy(), p, labels=np.arange(samples.classes)))


def _arrays(samples: Samples) -> tuple[Float[np.ndarray, "n f"], Int[np.ndarray, "n"]]:
    return features(samples), samples.y.numpy()


def one(a: argparse.Namespace, seed: int) -> dict[str, float]:
    """A whole run at one seed."""
    given = [item.partition("=") for item in a.set]
    nested = [(key.partition("."), json.loads(value)) for key, _, value in given]
    config = build_config(
        {
            "preset": "demo",
            "seed": seed,
            "data": {
                "dataset": a.dataset,
                "limit": a.limit,
                "public_fraction": a.public,
                "public_labels": a.labelled,
                "public_limit": 2000,
            },
            "network": {"encoder": a.encoder},
            "federation": {"clients": a.clients, "alpha": a.alpha},
            "privacy": {"epsilon": a.epsilon},
        },
        *({section: {name: value}} for (section, _, name), value in nested),
    )
    with finished(config, a.workers) as (run, summary):
        rows: dict[str, float] = dict(outcome(summary).means)
        rows |= {"pooled head": summary["accuracy"]["pooled"]}
        view = RunView(run, config)
        sites = [at_home(view.encoded_site(i), view.public) for i in range(len(view.sites))]
    rows |= {name: statistics.fmean(site[name] for site in sites) for name in HOME}
    return rows | {"at home": max(rows[name] for name in HOME)}


def within(runs: Sequence[Mapping[str, float]]) -> int:
    """In how many runs joined is near the models at home."""
    return sum(100 * (run["at home"] - run["joined"]) <= POINTS for run in runs)


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--make", type=Path, help="a folder of JPEGs to write, and no more")
    parser.add_argument("--cifar", type=Path, help="torchvision's root of CIFAR-10")
    parser.add_argument("--pictures", type=int, default=600, help="of each class to write")
    parser.add_argument("--encoder", help="a file of a frozen encoder")
    parser.add_argument("--dataset", help="an .npz or a folder of pictures")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--start", type=int, default=2000, help="the first seed")
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--alpha", type=float, default=0.5, help="of the Dirichlet partition")
    parser.add_argument("--limit", type=int, default=1600, help="samples of all sites")
    parser.add_argument("--public", type=float, default=0.1, help="share of the data")
    parser.add_argument("--labelled", type=int, default=40, help="of the public samples")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=JSON")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    if a.make:
        make_folders(a.cifar, a.make, a.pictures)
        return
    runs = []
    for seed in range(a.start, a.start + a.seeds):
        runs.append(one(a, seed))
        if not a.json:
            print(seed, *(f"{name} {value:.3f}" for name, value in runs[-1].items()), sep="  ")
    record = table(runs)
    if a.json:
        print(json.dumps({"rows": record, "runs": runs, "within": within(runs)}))
        return
    for row, f in record.items():
        print(
            f"{row:34} {f['mean']:.3f}  joined {f['joined above']:+.1f} +- {f['error']:.1f} points"
        )
    print(f"within {POINTS:g} points of the best at home: {within(runs)} of {len(runs)} seeds")


if __name__ == "__main__":
    main()
