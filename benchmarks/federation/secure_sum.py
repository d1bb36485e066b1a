"""What a secure sum costs in time and bytes.

    python -m benchmarks.secure_sum [--sites 4,10,50] [--repeats 3] [--json]

`benchmarks.secure_sum_cost` has the cost of masking.
"""

import argparse
import json

from benchmarks.secure_sum_cost import NUMBERS, SITES, costs, text


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", default=",".join(map(str, SITES)), help="comma-separated")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    a = parser.parse_args()
    rows = costs([int(n) for n in a.sites.split(",")], a.repeats)
    if a.json:
        print(json.dumps({"numbers": NUMBERS, "cost": rows}))
        return
    print(f"Cost of masking {NUMBERS} numbers a site\n\n{text(rows)}")


if __name__ == "__main__":
    main()
