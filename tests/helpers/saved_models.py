"""Sites that have a network and a predictor, as far as their files say so."""

from pathlib import Path

import tomli_w

from dprbft.paths import SitePaths, model_file, predictor_file, settings_file
from panas.runtime.store import write_tensors
from panas.training.linear.predictor import NOTE


def site_at(folder: Path, name: str, network: bool = True) -> SitePaths:
    """A site with both files, which are empty but for saying what they are."""
    folder.mkdir(parents=True)
    text = tomli_w.dumps({"name": name, "data": "d.npz", "epsilon": 8.0, "delta": 1e-5})
    settings_file(folder).write_text(text)
    paths = SitePaths(0, name, folder, "trial")
    write_tensors(predictor_file(paths.home), {}, {NOTE: "{}"})
    if network:
        write_tensors(model_file(paths.home), {}, {"network": "{}"})
    return paths
