"""Runs that neighbouring data sets are tried on: every method, by its name and what is special."""

from collections.abc import Mapping
from typing import Any

from branches import OF_METHOD
from neighbours import Owner, Trial
from tiny_methods import tiny_options

from dprbft.config.families import method_names
from dprbft.config.files import merge
from dprbft.config.sections import FederationSettings

PICTURES = Owner(table=False)
STAYS: Mapping[str, Any] = {"privacy": {"network": "stays"}}
JUDGED: Mapping[str, Any] = {"federation": {"baselines": True}}
SUMMED: Mapping[str, Any] = {"privacy": {"network": "stays", "trust": "secure-sum"}}
GROUPED = Owner(settings={"group": "who"}, columns=("who",))


def _updates(name: str, **more: Any) -> Trial:
    """A run of a method that exchanges updates, on pictures as its own tests have them."""
    settings = {"federation": {"options": tiny_options(name)}, "search": {}}
    owner = Owner(table=False, settings={"releases": [name]})
    noised = ("round",) if name in OF_METHOD else ()
    return Trial(name, name, merge(settings, more), owner, public=0, noised=noised)


UPDATES = {
    name: _updates(name)
    for name in method_names()
    if FederationSettings(method=name).family.sends == "updates"
}
TRIALS: dict[str, Trial] = {
    trial.name: trial
    for trial in (
        Trial("joined", "joined", STAYS, public=12),
        Trial("joined without public samples", "joined", STAYS, public=0),
        Trial("joined, judged", "joined", merge(dict(STAYS), dict(JUDGED)), public=12),
        Trial("joined, pictures", "joined", STAYS, PICTURES, public=12),
        Trial("joined, protected", "joined", {}, public=12),
        Trial("joined, tuned", "joined", {"tuning": {"trials": 2}}, public=12),
        Trial("joined, groups", "joined", STAYS, GROUPED, public=12),
        Trial(
            "joined in a sum",
            "joined",
            SUMMED,
            public=12,
            others=3,
            noised=("ready", "keys", "share", "unmask"),
        ),
        Trial("local", "local"),
        Trial("local, judged", "local", JUDGED),
        Trial("local, pictures", "local", {}, PICTURES),
        Trial("local, tuned", "local", {"tuning": {"trials": 2, "initial": 1}}),
        Trial("dprbft", "dprbft"),
        Trial("dprbft, pictures", "dprbft", JUDGED, PICTURES),
        *UPDATES.values(),
    )
}
"""All of them, by name."""
