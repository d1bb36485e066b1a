"""A strict reader of Prometheus's text format 0.0.4, as an oracle for what /metrics answers."""

import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (NaN|[+-]Inf|[-+0-9.e]+)")
PAIR = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"')
ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read_metrics(text: str) -> Series:
    """The value of each series, by name and labels; ValueError for what is not in the format."""
    if not text.endswith("\n"):
        raise ValueError("the last line does not end")
    series, helped, kinds, name = Series(), set[str](), dict[str, str](), ""
    for line in text.splitlines():
        if found := re.fullmatch(rf"# HELP ({NAME}) (.*)", line):
            if found[1] in helped:
                raise ValueError(f"a second family {found[1]}")
            helped.add(found[1])
            name = found[1]
        elif found := re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge)", line):
            if found[1] != name or name in kinds:
                raise ValueError(f"a type out of place: {line}")
            kinds[name] = found[2]
        elif (found := SAMPLE.fullmatch(line)) and found[1] == name and name in kinds:
            pairs = PAIR.findall(found[2] or "")
            labels = frozenset((k, re.sub(r"\\.", lambda m: ESCAPES[m[0]], v)) for k, v in pairs)
            if (name, labels) in series or len(labels) < len(pairs):
                raise ValueError(f"twice: {line}")
            value = float(found[3])
            if kinds[name] == "counter" and not (name.endswith("_total") and value >= 0):
                raise ValueError(f"no counter: {line}")
            series[name, labels] = value
        else:
            raise ValueError(f"no line of the format: {line!r}")
    return series


def value_of(text: str, name: str, **labels: str) -> float:
    """The value of one series; KeyError if it is not there."""
    return read_metrics(text)[name, frozenset(labels.items())]
