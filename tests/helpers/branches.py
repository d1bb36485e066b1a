"""Every branch of a verb whose outcome could depend on rows, and why an answer tells nothing of it.

`docs/reference/branches.md` is this table; `python tests/helpers/branches.py > FILE` writes it
anew. Tests drive each verb of each method on neighbouring data sets, and refuse a verb without an
entry. A method needs one in `OF_METHOD` only if the size of its message follows from noised counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dprbft.config.families import family_of


@dataclass(frozen=True)
class Branch:
    """What could depend on rows, what a hub sees of it, and why."""

    what: str
    seen: str
    why: str


NOTHING = "nothing"
CHARGED = "the noised message"
GREETED = "DONE or ABSENT"

GREETING: Mapping[str, tuple[Branch, ...]] = {
    "hello": (
        Branch(
            "site.toml, facts.json, the ledger and the message refuse the run",
            "REFUSED or NO_BUDGET",
            "none of them follows from a row; the ledger is read before the data",
        ),
        Branch(
            "the file does not load: a row of other cells, an undeclared class, no file",
            GREETED,
            "one code whatever the reason, which the owner alone reads; that a site is absent is "
            "not covered",
        ),
        Branch(
            "how many rows there are, and of how many classes",
            NOTHING,
            "splits may be too small or empty: work is left out later, and the answers stay",
        ),
        Branch(
            "samples are public too, or another ledger was charged for them",
            NOTHING,
            "the owner is told; with `strict = true` the owner lets the hub learn of a refusal",
        ),
        Branch(
            "the hello is said again after the data changed",
            NOTHING,
            "a known hello is compared with the one that was noted, and reads no row",
        ),
    ),
    "leave": (
        Branch(
            "the run was charged already",
            NOTHING,
            "the answer is DONE either way; what is charged stays",
        ),
    ),
}
"""Of every method."""

JOINED: Mapping[str, tuple[Branch, ...]] = {
    "ready": (
        Branch(
            "the budget pays for the release and the residual",
            "DONE or NO_BUDGET",
            "planned from the ledger, the run's settings and public numbers",
        ),
        Branch(
            "in a secure sum: the noise that a site asks for, and whether it sends",
            "the offer",
            "follows from the same public facts",
        ),
    ),
    "keys": (
        Branch("none: keys are random", NOTHING, "no row is read"),
        Branch("the plan of the sum does not fit the site", GREETED, "the message decides"),
    ),
    "share": (Branch("none: shares are of random seeds", NOTHING, "no row is read"),),
    "round": (
        Branch(
            "the broadcast, the plan or the shares do not fit",
            GREETED,
            "checked before the charge; the message decides",
        ),
        Branch(
            "a row is not finite, of any class, extreme, or a duplicate",
            CHARGED,
            "each row's part has norm at most 1, and noise is added to the sum",
        ),
        Branch(
            "how many rows, none among them",
            CHARGED,
            "arrays have the size of the map and the classes, whatever they are of",
        ),
        Branch(
            "what fails after the charge",
            GREETED,
            "one way out; asked again, the site sends what was paid for",
        ),
        Branch(
            "the size of the message",
            "its bytes",
            "arrays of fixed shapes; its texts are public numbers and numbers of charges",
        ),
    ),
    "unmask": (
        Branch("none: shares of seeds, by the list of survivors", NOTHING, "no row is read"),
    ),
    "finish": (
        Branch(
            "the answer does not fit the run, or comes before the round",
            GREETED,
            "the message and the order of messages decide",
        ),
    ),
    "search": (
        Branch(
            "candidates are scored on public samples",
            NOTHING,
            "a code alone; what fails is the owner's to read",
        ),
    ),
    "tune": (Branch("trials on public samples", NOTHING, "a code alone"),),
    "train": (
        Branch(
            "residual, student, weights on the validation split, baselines, pictures, reports",
            NOTHING,
            "a code alone, DONE whatever came of them; an error is noted for the owner",
        ),
        Branch(
            "it is asked before the answer of the round",
            GREETED,
            "the order of messages decides",
        ),
    ),
    "export": (Branch("the ledger's note of what was spent", NOTHING, "a code alone"),),
}

FAILED = Branch(
    "what fails after the charge",
    GREETED,
    "one way out; asked again, the site charges anew, within its share, with more noise",
)

PAID = replace(FAILED, why="one way out; asked again, its charge pays, at most 50 times")

ROUNDS: Mapping[str, tuple[Branch, ...]] = {
    "search": JOINED["search"],
    "tune": JOINED["tune"],
    "ready": (
        Branch(
            "the budget pays for all rounds",
            "DONE or NO_BUDGET",
            "planned from the ledger, the run's settings and public numbers",
        ),
        Branch(
            "accuracy of the warm start, which is measured and kept",
            NOTHING,
            "it stays at the site",
        ),
    ),
    "round": (
        Branch(
            "the broadcast does not fit, or is another than before",
            GREETED,
            "checked before the charge; the message decides",
        ),
        Branch(
            "training drives weights to NaN or infinity",
            CHARGED,
            "the round keeps the weights of before; the message has its size",
        ),
        Branch(
            "a row is not finite, of any class, extreme, or a duplicate",
            CHARGED,
            "gradients are clipped by sample, releases by row, and noised",
        ),
        Branch(
            "which network validation prefers",
            NOTHING,
            "the choice stays at the site",
        ),
        Branch("method local sends nothing", NOTHING, "the message has no bytes"),
        PAID,
    ),
    "finish": (
        Branch(
            "the answer does not fit the round",
            GREETED,
            "the message and the order of messages decide",
        ),
        Branch("which head validation prefers", NOTHING, "the choice stays at the site"),
    ),
    "export": (
        Branch(
            "metrics, baselines, pictures and reports",
            NOTHING,
            "a code alone; an error is noted for the owner",
        ),
    ),
}

UPDATES: Mapping[str, tuple[Branch, ...]] = {
    "ready": ROUNDS["ready"],
    "round": (
        Branch(
            "the order does not fit the method's network, or is another than before",
            GREETED,
            "checked before the charge; the message decides",
        ),
        Branch(
            "training drives weights to NaN or infinity",
            CHARGED,
            "the update has the weights of before; the message has its size",
        ),
        Branch(
            "a row is not finite, of any class, extreme, or a duplicate",
            CHARGED,
            "gradients are clipped by sample and noised, as are counts and sums of rows",
        ),
        Branch(
            "the number of samples, where a server weighs updates by it",
            "a number",
            "the noised total, or what the owner declares",
        ),
        FAILED,
    ),
    "finish": (
        Branch("the result does not fit", GREETED, "the message decides"),
        Branch("what the site keeps of it", NOTHING, "a code alone"),
    ),
    "export": ROUNDS["export"],
}

OF_METHOD: Mapping[str, tuple[Branch, ...]] = {
    "fedgh": (
        Branch(
            "which classes have a mean",
            "the size of the message",
            "those whose noised count is large enough: it follows from what was paid for",
        ),
    ),
    "perfedrlnas": (
        Branch(
            "the reward",
            "a number of some digits",
            "a ratio of two noised counts, charged beforehand",
        ),
    ),
    "feathers": (
        Branch("the reward", "a number of some digits", "noised, and charged beforehand"),
    ),
    "decnas": (
        Branch(
            "scores of candidates",
            "numbers of some digits",
            "noised counts of validation samples, charged beforehand",
        ),
    ),
}
OF_METHOD = {**OF_METHOD, "fedgh_published": OF_METHOD["fedgh"], "fedproto": OF_METHOD["fedgh"]}
"""What only one method has, of its rounds: how many bytes it sends follows from noised counts."""

TABLES: Mapping[str, Mapping[str, tuple[Branch, ...]]] = {
    "joined": JOINED,
    "rounds": ROUNDS,
    "updates": UPDATES,
}


def branches(method: str, verb: str) -> tuple[Branch, ...]:
    """The branches of a verb in a method; KeyError if nobody has listed them."""
    listed = {**GREETING, **TABLES[family_of(method).name]}[verb]
    return listed + (OF_METHOD.get(method, ()) if verb == "round" else ())


INTRODUCTION = """\
# What an answer can depend on

A hub sees of a site's answer its code, its bytes and that it came. Noise covers what a charged
message says. The rest must not depend on a row. The tables list, for each verb, every branch whose
outcome could depend on rows, what a hub sees of it, and why it tells nothing beyond what the ledger
covers. How long an answer takes is not covered.

Once it has joined a run, a site answers DONE or ABSENT, whatever went wrong, and NO_BUDGET where
its ledger has too little left. Refusals follow from what is public: `site.toml`, `facts.json`, the
ledger, the message.

Tests drive every verb of every method on neighbouring data sets and compare what crosses. The sets
differ by one sample, extreme values, NaN, other classes, duplicates, few samples
(`tests/dprbft/neighbours/`). This page is written from their list (`tests/helpers/branches.py`). A
verb without an entry fails them. A method needs an entry of its own where the size of its message
follows from noise.
"""
TITLES: Mapping[str, str] = {
    "joined": "Method joined",
    "rounds": "Methods dprbft and local",
    "updates": "Methods of the literature",
}


def page() -> str:
    """The page of the documents."""
    parts = [INTRODUCTION, "## Every method\n", _table(GREETING)]
    for family, table in TABLES.items():
        parts += [f"## {TITLES[family]}\n", _table(table)]
    own: dict[tuple[Branch, ...], list[str]] = {}
    for method, listed in OF_METHOD.items():
        own.setdefault(listed, []).append(method)
    named = {f"round of {', '.join(sorted(methods))}": listed for listed, methods in own.items()}
    parts += ["Beside these:\n", _table(named)]
    return "\n".join(parts)


def _table(table: Mapping[str, tuple[Branch, ...]]) -> str:
    lines = ["| verb | what could depend on rows | the hub sees | why |", "|---|---|---|---|"]
    for verb, listed in table.items():
        for i, branch in enumerate(listed):
            first = f"`{verb}`" if verb.isalpha() else verb
            said = f"| {branch.what} | {branch.seen} | {branch.why} |"
            lines.append(f"| {first if not i else ''} {said}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
