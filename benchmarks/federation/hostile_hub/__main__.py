"""`python -m benchmarks.hostile_hub --messages 10000 --json`: figures of an attack on a node."""

import argparse
import json
import sys

from benchmarks.hostile_hub.attack import SECONDS, attack


def main() -> int:
    """Print what came of it; 1 if anything failed."""
    parser = argparse.ArgumentParser(description="A hostile hub against a real node.")
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="in which each is answered")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    outcomes = attack(a.messages, a.seed, a.seconds)
    if a.json:
        print(
            json.dumps(
                {"messages": a.messages, "seed": a.seed, "pairs": [o.to_json() for o in outcomes]}
            )
        )
    else:
        for outcome in outcomes:
            for name, value in outcome.to_json().items():
                print(f"{name}: {value}")
    return int(any(o.failures for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
