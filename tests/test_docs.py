"""The code that the documents show, run at a small size."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from panas.evolution import EvolutionConfig
from panas.tuning import TuningConfig

ROOT = Path(__file__).resolve().parents[1]


class Pictures:
    """As many small grey pictures as a document's slices ask for, instead of torchvision's."""

    def __init__(self, root: str, download: bool = False) -> None:
        rng = np.random.default_rng(0)
        self._patterns = rng.integers(0, 200, (10, 28, 28))
        self._noise = rng.integers(0, 55, (200, 28, 28))

    def __len__(self) -> int:
        return 6000

    def __getitem__(self, i: int) -> tuple[Image.Image, int]:
        pixels = self._patterns[i % 10] + self._noise[i % 200]
        return Image.fromarray(pixels.astype(np.uint8)), i % 10


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_searching_shows_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Its code blocks, one after the other in one session, with fewer samples and trials."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/searching.md").read_text(), re.S)
    assert len(blocks) >= 5
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torchvision.datasets.FashionMNIST", Pictures)
    few = EvolutionConfig(population=3, generations=1, seeding=2)
    monkeypatch.setattr("panas.search.EvolutionConfig", lambda: few)
    monkeypatch.setattr("panas.tuned.TuningConfig", lambda: TuningConfig(initial=1, trials=2))
    session: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks:
        small = block.replace("range(2000, 6000)", "range(100, 220)")
        small = small.replace("range(2000)", "range(100)")
        exec(compile(small, "searching.md", "exec"), session)
    assert session["tuned"].epsilon <= 3
    assert str(session["Squeeze"](4)) == "se4"
    assert {p.name for p in (tmp_path / "runs/mine").iterdir()} >= {
        "best.json",
        "network.safetensors",
        "history.png",
        "network.png",
        "log.jsonl",
    }
    assert {p.name for p in (tmp_path / "runs/mine-tuned").iterdir()} >= {
        "best.json",
        "network.safetensors",
        "trials.png",
        "log.jsonl",
        "ledger.jsonl",
    }
