"""Public samples without labels: a run keeps them, its hello names them, each site opens them."""

from collections.abc import Callable
from pathlib import Path

import torch

from dprbft.config.schema import RunConfig
from dprbft.messages import Hello
from dprbft.paths import unlabelled_file
from dprbft.run.directory import Ground, prepare
from dprbft.run.view import RunView
from dprbft.site.data import write_samples
from dprbft.site.joining import join
from dprbft.site.site import Client, open_client


def test_a_run_without_unlabelled_samples_says_so(
    tiny: Callable[..., RunConfig], site: Callable[..., Client], tmp_path: Path
):
    client, view = site(tiny(), tmp_path / "r"), RunView(tmp_path / "r", tiny())
    assert Hello.from_bytes(view.hello(0)).unlabelled == ""
    assert len(client.unlabelled) == len(view.unlabelled) == 0
    assert client.unlabelled.shape == client.facts.shape


def test_a_site_opens_the_unlabelled_samples_that_the_hello_names(
    tiny: Callable[..., RunConfig], tmp_path: Path
):
    run = tmp_path / "r"
    ground = Ground.of(run)
    prepare(run, tiny(), resume=False)
    view = RunView(run, tiny())
    some = view.public.take(range(7))
    write_samples(unlabelled_file(run), some)
    join(view.places[0], view.hello(0))
    client = open_client(view.places[0])
    assert Hello.from_bytes(view.hello(0)).unlabelled == str(unlabelled_file(run).resolve())
    assert torch.equal(client.unlabelled.x, some.x)
    assert torch.equal(view.unlabelled.x, some.x)
    assert len(client.public) == len(view.public) > 7
    ground.restore()
    assert not run.exists()
