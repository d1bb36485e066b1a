"""Options of the command line that make a run take a second or two."""

import json
from collections.abc import Sequence
from itertools import pairwise

import tiny_runs

from dprbft.config.families import family_of
from dprbft.config.flat import flatten

OWN = ("network.width", "federation.method")
"""Settings of a tiny run that the command line has options for, or leaves as they are."""
TINY = {key: json.dumps(v) for key, v in flatten(tiny_runs.TINY).items() if key not in OWN}
TINY["audit.threats"] = "[]"


class Default(str):
    """A word of the command line that gives way to the same option given otherwise."""

    __slots__ = ()


def tiny_options(**changes: object) -> list[str]:
    """`--set` options of a tiny run; `changes` name a key as section__key."""
    settings = TINY | {k.replace("__", "."): str(v) for k, v in changes.items()}
    given = (x for k, v in settings.items() for x in ("--set", f"{k}={v}"))
    return [Default(word) for word in ("--workers", "1", "--method", "dprbft", *given)]


def without_overruled(words: Sequence[object]) -> list[str]:
    """The words, without the defaults that others overrule, or that the method does not read."""

    def key(option: object, value: object) -> str:
        return str(value).split("=")[0] if option == "--set" else str(option)

    pairs = list(pairwise(words))
    given = {key(*pair) for pair in pairs if not isinstance(pair[0], Default)}
    methods = [str(v) for o, v in pairs if o == "--method" and not isinstance(o, Default)]
    named = [str(v).split("=")[1] for _, v in pairs if str(v).startswith("federation.method=")]
    # The last is the default.
    family = family_of([*named, *methods, "dprbft"][0].replace("-", "_"))
    kept, default_value = [], False
    for word, after in [*pairs, (words[-1], "")] if words else []:
        starts = isinstance(word, Default) and not default_value
        if not isinstance(word, Default):
            kept.append(str(word))
        elif starts and key(word, after) not in given and family.reads(key(word, after)):
            kept += [str(word), str(after)]
        default_value = starts
    return kept
