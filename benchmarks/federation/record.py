"""Write into README.md what the first run prints at its end.

    python -m benchmarks.record [--seed 0]

The text between the two marks is replaced; the run's noise differs each time.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"
MARKS = ("<!-- recorded by python -m benchmarks.record -->\n", "<!-- end -->")


def recorded(text: str, screen: str) -> str:
    """The page with the last screen of a run between its marks."""
    begin, end = MARKS
    lines = "\n".join(line.rstrip() for line in screen.strip().splitlines())
    block = f"{begin}```text\n{lines}\n```\n{end}"
    pattern = f"{re.escape(begin)}.*?{re.escape(end)}"
    page, changed = re.subn(pattern, lambda _: block, text, flags=re.DOTALL)
    if changed != 1:
        raise SystemExit(f"expected {begin.strip()} and {end} once, got them {changed} times")
    return page


def main() -> None:
    """Run, and rewrite the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "panas_cli", "run", "--out", "runs/first"]
        done = subprocess.run(
            [*command, "--seed", str(seed)],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    README.write_text(recorded(README.read_text(), done.stdout))


if __name__ == "__main__":
    main()
