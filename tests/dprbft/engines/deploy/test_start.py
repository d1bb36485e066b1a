"""What a site starts: a relay that ends is started again, a node that ends ends all."""

import sys
from pathlib import Path

import pytest

from dprbft.engines.deploy import start
from dprbft.engines.deploy.start import Part, start_site
from panas.runtime.errors import PanasError


def test_a_relay_that_ends_is_started_again_until_the_node_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "site.toml").touch()
    starts = tmp_path / "starts"
    note = f"open({str(starts)!r}, 'a').write('x')"
    wait = (
        "import pathlib, time\n"
        f"while len(pathlib.Path({str(starts)!r}).read_text()) < 3: time.sleep(.05)"
    )
    starts.touch()
    parts = (
        Part("node", (sys.executable, "-c", wait), tmp_path / "flower"),
        Part("relay", (sys.executable, "-c", note), tmp_path / "flower"),
    )
    monkeypatch.setattr(start, "site_parts", lambda folder: parts)
    monkeypatch.setattr(start, "AGAIN", 0.0)
    with pytest.raises(PanasError, match="expected the node to go on, and it ended with code 0"):
        start_site(tmp_path)
    assert len(starts.read_text()) >= 3
