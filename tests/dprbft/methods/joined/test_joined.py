"""Method joined: what leaves and what it costs, what a site predicts with, and deaths."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accounting_oracles import analytic_gaussian
from tiny_runs import carry_out, greeted, joined_config

import panas
from attacks.audit.run import audit_run
from dprbft.config.files import build_config, load_config, merge
from dprbft.engines.inprocess import InProcess
from dprbft.messages import Broadcast, Code, NoisedHistogram, Release, Verb
from dprbft.methods.joined import exchange as joined
from dprbft.methods.joined import finish, residual
from dprbft.methods.joined.finish import alone
from dprbft.methods.joined.state import JoinedState, has_head
from dprbft.methods.serve import Machine, serve
from dprbft.methods.side import Side
from dprbft.paths import (
    map_file,
    model_file,
    pooled_file,
    predictor_file,
    read_sites,
    report_file,
    search_file,
    sent_file,
    state_file,
)
from dprbft.run import summary as pooling
from dprbft.run.directory import OpenRun, prepare
from dprbft.run.stages import exchange_stage, stages_of
from dprbft.run.summary import Pooling, exact_pooling, summarise
from dprbft.run.view import RunView
from dprbft.site.results.report import SiteReport
from dprbft.site.site import Site, open_site
from panas.data.samples import concat
from panas.privacy.accounting.events import Gaussian, SampledGaussian
from panas.runtime.errors import BadInput
from panas.runtime.seeds import stream
from panas.runtime.store import write_json
from panas.training.checkpoint import load_network
from panas.training.linear.averaging import log_prior
from panas.training.linear.predictor import read_predictor
from panas.training.linear.ridge import exact_moments, logits, shared_head


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two sites, searched, tuned and trained."""
    run = tmp_path_factory.mktemp("joined") / "run"
    carry_out(run, joined_config())
    return run


@pytest.mark.slow
def test_all_that_a_site_spends_is_a_histogram_one_release_and_dp_sgd(whole: Path):
    for paths in read_sites(whole):
        site = open_site(paths)
        events = site.account.entries
        assert [e.charge.mechanism for e in events] == ["label-histogram", "moments", "dp-sgd"]
        assert [e.charge.recipient for e in events][:2] == ["server", "server"]
        histogram, moments, training = (e.event for e in events)
        assert isinstance(histogram, Gaussian)
        assert isinstance(moments, Gaussian)
        assert isinstance(training, SampledGaussian)
        assert training.rate == 1
        # Gaussians compose to one whose squared signal is the sum of theirs.
        signal = histogram.noise_multiplier**-2 + moments.noise_multiplier**-2
        signal += training.steps * training.noise_multiplier**-2
        epsilon = analytic_gaussian(signal**-0.5, site.budget.delta)
        assert 0.97 * site.budget.epsilon < epsilon <= site.budget.epsilon * 1.0001


@pytest.mark.slow
def test_what_leaves_names_the_charges_that_cover_it(whole: Path):
    for paths in read_sites(whole):
        site, classes = open_site(paths), 10
        content = sent_file(paths.home, 1).read_bytes()
        message = Release.from_bytes(content, width=16, classes=classes)
        assert message.to_bytes() == content
        charges = {e.id: e.charge for e in site.account.entries}
        assert charges[message.receipt].mechanism == "moments"
        assert message.histogram is not None
        charge = charges[message.histogram.receipt]
        assert charge.mechanism == "label-histogram"
        assert isinstance(charge.event, Gaussian)
        assert charge.sensitivity is not None
        assert message.histogram.noise == charge.sensitivity * charge.event.noise_multiplier
        exact = site.data.train.histogram()
        assert not torch.equal(message.histogram.counts, exact.float())


@pytest.mark.thorough
def test_a_run_with_fewer_bits_costs_the_same_and_passes_its_audit(whole: Path, run: Path):
    carry_out(run, joined_config(federation={"compression": "int8"}))
    for paths, other in zip(read_sites(run), read_sites(whole), strict=True):
        sent, plain = (sent_file(p.home, 1).read_bytes() for p in (paths, other))
        assert len(sent) < len(plain)
        charged, as_before = (
            [e.charge.mechanism for e in open_site(p).account.entries] for p in (paths, other)
        )
        assert charged == as_before
    assert {c.verdict for c in audit_run(run).clients} <= {"protected", "no better than blind"}


@pytest.mark.slow
def test_a_predictor_is_what_its_site_reports(whole: Path):
    for paths in read_sites(whole):
        site, report = open_site(paths), SiteReport.read(paths.home)
        predictor = read_predictor(predictor_file(paths.home))
        test = site.data.test
        right = predictor.probabilities_of(test.inputs()).argmax(1) == test.y
        assert float(right.double().mean()) == pytest.approx(report.steps.joined)
        assert sum(report.shares.values()) == pytest.approx(1)
        wanted = {"public", "shared", "residual", "network"}
        assert set(report.shares) == wanted
        network = load_network(model_file(paths.home))
        assert network.classes == 10
        kept = predictor.candidates.network
        assert kept is not None
        assert torch.equal(kept.network(test.inputs()), network.network(test.inputs()))


def test_a_predictor_knows_labels_by_its_histogram_and_its_validation_samples(whole: Path):
    for paths in read_sites(whole):
        site = open_site(paths)
        state, noise = JoinedState.read(site), site.noised_units()
        counts = torch.tensor(state.histogram)
        assert noise is not None
        seen = counts.clamp(min=0).sum().item()
        worth = seen / (1 + noise[1] ** 2 * 10 / (seen * 9))  # noise of the sum of 10 counts
        shares = log_prior(counts).exp() * (worth + 1) + site.data.validation.histogram()
        joined, rival = read_predictor(predictor_file(paths.home)), alone(site, state)
        assert rival is not None
        for predictor in (joined, rival):
            pi = torch.tensor(predictor.average.log_frequencies).exp()
            torch.testing.assert_close(pi, shares / shares.sum())


def test_exact_labels_are_worth_the_units_and_a_histogram_without_a_charge_nothing(
    whole: Path, monkeypatch: pytest.MonkeyPatch
):
    site, state = open_site(read_sites(whole)[0]), JoinedState(histogram=(3.0, 5.0))
    monkeypatch.setattr(Site, "noised_units", lambda _: None)
    assert finish.label_worth(site, state) == 0
    stays = joined_config(privacy={"network": "stays"})
    units = len(site.data.train)
    assert finish.label_worth(replace(site, config=stays), state) == units


def test_both_files_of_a_site_are_loaded_and_name_classes_of_raw_pictures(whole: Path):
    paths = read_sites(whole)[0]
    test = open_site(paths).data.test
    pictures, inputs = test.x[:, 0].numpy(), test.inputs()
    network, predictor = (panas.load(f(paths.home)) for f in (model_file, predictor_file))
    for saved, said in (
        (network, network.network(inputs).softmax(1)),
        (predictor, predictor.probabilities_of(inputs)),
    ):
        assert saved.class_names == tuple("0123456789")
        assert saved.predict(pictures) == tuple(saved.class_names[i] for i in said.argmax(1))
    with pytest.raises(BadInput, match="got another safetensors file; give one of"):
        panas.load(map_file(whole))


def test_a_summary_tells_of_a_run_that_joined(whole: Path):
    summary = summarise(whole, joined_config())
    assert summary["rounds"] == 1
    assert summary["method"] == "joined"
    assert set(summary["seconds"]) == {"join", "search", "tune", "train", "audit"}
    sent = sum(sent_file(paths.home, 1).stat().st_size for paths in read_sites(whole))
    assert summary["communication"]["up_bytes"] == sent
    for site in summary["clients"]:
        assert site["accuracy"]["selected"] > 0.3
        assert site["ladder"]["joined"] == site["accuracy"]["selected"]


def test_exact_pooling_is_the_head_of_all_samples_together(
    whole: Path, monkeypatch: pytest.MonkeyPatch
):
    run = RunView(whole, load_config(whole))
    phi, sites = run.feature_map, [run.site(p.index) for p in run.sites]
    assert phi is not None
    pooled_file(whole).unlink(missing_ok=True)
    everyone = concat([s.train for s in sites])
    z = phi(everyone.inputs())
    total = replace(
        exact_moments(z, everyone.y, everyone.classes), counts=everyone.histogram().double()
    )
    of_public = exact_moments(phi(run.public.inputs()), run.public.y, everyone.classes)
    head = shared_head(total, of_public, len(run.public))
    result = exact_pooling(run, run.sites)
    for paths, site in zip(run.sites, sites, strict=True):
        scores = logits(head, phi(site.test.inputs())) + log_prior(site.train.histogram().float())
        right = (scores.argmax(1) == site.test.y).double().mean()
        assert result.head[paths.name] == pytest.approx(float(right), abs=1 / len(site.test))
    monkeypatch.setattr(pooling, "pooled_accuracies", None)  # it is not measured again
    assert exact_pooling(run, run.sites) == result
    (_, second) = run.sites
    only = exact_pooling(run, [second])
    assert only.head == {second.name: result.head[second.name]}
    assert only.forest == {second.name: result.forest[second.name]}
    write_json(pooled_file(whole), {"accuracy": result.head})  # as older versions wrote it
    assert exact_pooling(run, run.sites) == Pooling(result.head)
    pooled_file(whole).unlink()
    monkeypatch.setattr(pooling, "changed", lambda _: 0)  # the data have gone
    assert exact_pooling(run, run.sites) == Pooling()


def test_the_server_adds_up_what_it_received(whole: Path):
    config, view = joined_config(), RunView(whole, joined_config())
    releases = [
        Release.from_bytes(sent_file(p.home, 1).read_bytes(), width=16, classes=10)
        for p in view.sites
    ]
    side = Side(config, view.facts, view.public, view.feature_map)
    before = Broadcast(0, torch.zeros(10, 16), torch.zeros(10))
    answer = joined.server_round(side, releases, before, 1, stream(0))
    # By hand: noised moments of all sites, A drawn to the public one, classes balanced, beside the
    # exact public ones.
    results = [r.estimate(10) for r in releases]
    A, B = sum(m.A for m in results), sum(m.B for m in results)
    raw = sum(r.histogram.counts for r in releases).double()
    counts = raw.clamp(min=0)
    variance = sum(m.variance for m in results)
    unclear = sum(r.histogram.noise**2 for r in releases) / float(raw.var())
    known = raw - min(1.0, (2 * unclear) ** 4 / 2) * (raw - raw.mean())
    known = known.clamp(min=0)
    B = ((known.mean() + 100) / (known + 100))[:, None] * B
    z = view.feature_map(view.public.inputs()).double()
    n, p = float(counts.sum()), len(z)
    signal = 0.06 * n / 16
    w = signal / (signal + variance)
    expected = n * (z.T @ z + 5 / 16 * torch.eye(16)) / (p + 5)
    v = signal + (n / 16) ** 2 / (p + 5)
    A = expected + v / (v + 4 * variance) * (A - expected)
    one = torch.nn.functional.one_hot(view.public.y, 10).double().T
    A, B = z.T @ z + w * A, one @ z + w * B
    values, vectors = torch.linalg.eigh(A)
    A = vectors @ torch.diag(values.clamp(min=0)) @ vectors.T
    ridge = max(2 * w * math.sqrt(variance * 16), 0.9) * torch.eye(16).double()
    W = (torch.eye(10).double() - 0.1) @ B @ torch.linalg.inv(A + ridge)
    torch.testing.assert_close(answer.weight, W.float(), rtol=1e-4, atol=1e-4)
    assert not answer.bias.any()


@pytest.mark.slow
def test_every_verb_answers_the_same_again_and_charges_once(tmp_path: Path):
    config, machine = joined_config(), Machine()
    paths, before = greeted(tmp_path / "run", config)
    assert serve(paths, machine, Verb.READY, before).code is Code.DONE
    assert open_site(paths).account.entries == ()
    first = serve(paths, machine, Verb.ROUND, before)
    again = serve(paths, machine, Verb.ROUND, before)
    assert first == again
    assert len(first.release) > 1000
    other = Broadcast.from_bytes(before, width=16, classes=10)
    changed = replace(other, weight=other.weight + 1).to_bytes()
    assert serve(paths, machine, Verb.ROUND, changed).code is Code.REFUSED
    answer = replace(other, round=1).to_bytes()
    for verb, content in ((Verb.FINISH, answer), (Verb.SEARCH, b""), (Verb.TUNE, b"")):
        for _ in range(2):
            assert serve(paths, machine, verb, content).code is Code.DONE
    for _ in range(2):
        assert serve(paths, machine, Verb.TRAIN, b"").code is Code.DONE
        assert len(open_site(paths).account.entries) == 3


@pytest.mark.slow
def test_a_residual_that_died_leaves_the_budget_kept(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    paths, before = greeted(tmp_path / "run", joined_config())
    answer = replace(Broadcast.from_bytes(before, width=16, classes=10), round=1).to_bytes()
    for verb, content in ((Verb.ROUND, before), (Verb.FINISH, answer), (Verb.TUNE, b"")):
        assert serve(paths, Machine(), verb, content).code is Code.DONE
    assert serve(paths, Machine(), Verb.SEARCH, b"").code is Code.DONE

    def die(*args: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(residual, "fit_residual", die)
        with pytest.raises(KeyboardInterrupt):
            serve(paths, Machine(), Verb.TRAIN, b"")
    assert serve(paths, Machine(), Verb.TRAIN, b"").code is Code.DONE
    site = open_site(paths)
    state = JoinedState.read(site)
    assert state.finished
    assert (state.residual is None) == (state.why == "budget")
    assert site.account.spent() <= site.budget.epsilon


def test_a_budget_too_small_is_refused_before_anything_is_charged(tmp_path: Path):
    config = joined_config(privacy={"epsilon": 0.001})
    paths, before = greeted(tmp_path / "run", config)
    assert serve(paths, Machine(), Verb.READY, before).code is Code.NO_BUDGET
    assert open_site(paths).account.entries == ()


@pytest.mark.slow
def test_a_site_that_comes_late_gets_the_shared_head_alone(tmp_path: Path):
    config, run = joined_config(), tmp_path / "run"
    prepare(run, config, resume=False)
    paths = read_sites(run)[1]
    away = paths.folder.with_name("away")
    paths.folder.rename(away)
    with InProcess(read_sites(run), 1) as engine:
        exchange_stage(OpenRun(run, config, engine))
    away.rename(paths.folder)
    carry_out(run, config)
    assert not sent_file(paths.home, 1).exists()
    site = open_site(paths)
    mechanisms = [e.charge.mechanism for e in site.account.entries]
    assert mechanisms == ["label-histogram", "dp-sgd"]
    assert site.account.spent() <= site.budget.epsilon
    assert SiteReport.read(paths.home).steps.joined > 0.3


@pytest.mark.slow
def test_without_public_samples_there_is_a_head_and_no_network(tmp_path: Path):
    config, run = joined_config(data={"public_fraction": 0.0}), tmp_path / "run"
    assert "search" not in stages_of(config)
    carry_out(run, config)
    for paths in read_sites(run):
        assert not search_file(paths.home).exists()
        assert not model_file(paths.home).exists()
        assert set(SiteReport.read(paths.home).shares) == {"shared", "residual"}
    assert summarise(run, config)["clients"][0]["genome"] is None


def test_the_map_depends_on_no_private_sample(tmp_path: Path):
    maps = []
    for name in ("one", "other"):
        run, config = tmp_path / name, joined_config(data={"limit": 200 if name == "one" else 120})
        prepare(run, config, resume=False)
        maps.append(map_file(run).read_bytes())
    assert maps[0] == maps[1]


@pytest.mark.thorough
def test_without_a_budget_it_says_so(run: Path):
    config = joined_config(privacy={"epsilon": math.inf, "allow_unprotected": True})
    carry_out(run, config)
    site = open_site(read_sites(run)[0])
    assert site.account.spent() == math.inf
    content = sent_file(site.home, 1).read_bytes()
    message = Release.from_bytes(content, width=16, classes=10)
    assert message.noise_multiplier is None
    assert message.histogram is not None
    assert message.histogram.noise is None
    assert torch.equal(message.histogram.counts, site.data.train.histogram().float())


@pytest.mark.thorough
def test_a_network_that_stays_leaves_all_of_the_budget_to_the_release(whole: Path, tmp_path: Path):
    run, config = tmp_path / "run", joined_config(privacy={"network": "stays"})
    carry_out(run, config)
    for paths, other in zip(read_sites(run), read_sites(whole), strict=True):
        site, covered = open_site(paths), open_site(other)
        mechanisms = [e.charge.mechanism for e in site.account.entries]
        assert mechanisms == ["label-histogram", "moments"]
        least, more = (
            next(e.event for e in c.account.entries if e.charge.mechanism == "moments")
            for c in (site, covered)
        )
        assert least.noise_multiplier < more.noise_multiplier
        assert 0.98 * site.budget.epsilon < site.account.spent() <= site.budget.epsilon
        # Both say so, wherever they are taken to.
        assert read_predictor(predictor_file(paths.home)).notes["network"] == "stays"
        assert load_network(model_file(paths.home)).notes["network"] == "stays"
        assert load_network(model_file(other.home)).notes["network"] == "protected"
        state = JoinedState.read(site)
        assert state.histogram == tuple(site.data.train.histogram().tolist())
        # What joining must beat has a network that learnt from the site's own samples, too.
        rivals = [alone(c, JoinedState.read(c)) for c in (site, covered)]
        assert [bool(r and r.candidates.network) for r in rivals] == [True, False]
        report = SiteReport.read(paths.home)
        assert report.candidates["network"] == report.steps.network
        assert set(report.candidates) == set(report.shares)


def test_a_histogram_without_a_receipt_is_refused(whole: Path):
    content = sent_file(read_sites(whole)[0].home, 1).read_bytes()
    message = Release.from_bytes(content, width=16, classes=10)
    assert message.histogram is not None
    bare = replace(message, histogram=NoisedHistogram(message.histogram.counts, "none"))
    with pytest.raises(BadInput, match="number of a charge"):
        Release.from_bytes(bare.to_bytes(), width=16, classes=10)
    short = replace(message.histogram, counts=message.histogram.counts[:-1])
    with pytest.raises(BadInput, match="expected arrays"):
        Release.from_bytes(replace(message, histogram=short).to_bytes(), width=16, classes=10)
    for noise in (-1.0, 1e12, math.nan):
        wrong = replace(message.histogram, noise=noise)
        with pytest.raises(BadInput, match="histogram noise above 0"):
            Release.from_bytes(replace(message, histogram=wrong).to_bytes(), width=16, classes=10)


@pytest.mark.parametrize(
    ("method", "section", "key", "value"),
    [
        ("joined", "privacy", "release", "class_sums"),
        ("joined", "federation", "participation", 0.5),
        ("dprbft", "privacy", "network", "stays"),
    ],
)
def test_settings_that_do_not_fit_the_method_are_refused(
    method: str, section: str, key: str, value: Any
):
    settings = merge({"federation": {"method": method}}, {section: {key: value}})
    with pytest.raises(BadInput, match=rf"of method {method}, got {section}\.{key}"):
        build_config(settings)


def test_training_begins_after_joining(tmp_path: Path):
    paths, _ = greeted(tmp_path / "run", joined_config())
    assert serve(paths, Machine(), Verb.TUNE, b"").code is Code.DONE  # by rule
    assert serve(paths, Machine(), Verb.TRAIN, b"").code is Code.REFUSED
    assert serve(paths, Machine(), Verb.SEARCH, b"").code is Code.REFUSED
    assert open_site(paths).account.entries == ()
    assert not state_file(paths.home).exists()


@pytest.mark.slow
def test_where_joining_would_not_pay_nothing_is_sent_and_all_is_left(tmp_path: Path):
    # With one site there is nobody to join with.
    run, config = tmp_path / "run", joined_config(federation={"clients": 1})
    carry_out(run, config)
    (paths,) = read_sites(run)
    site = open_site(paths)
    mechanisms = [e.charge.mechanism for e in site.account.entries]
    assert mechanisms == ["label-histogram", "dp-sgd"]
    assert site.account.entries[0].charge.recipient != "server"  # nothing leaves
    assert 0.97 * site.budget.epsilon < site.account.spent() <= site.budget.epsilon
    assert not sent_file(paths.home, 1).exists()
    assert set(SiteReport.read(paths.home).shares) == {"public", "shared", "residual", "network"}
    state = JoinedState.read(site)
    assert (state.over, state.joins) == ("public", False)


@pytest.mark.slow
def test_a_share_that_is_set_is_kept(tmp_path: Path):
    noises = []
    for share in (0.3, 0.8):
        config = joined_config(privacy={"release_share": share})
        paths, before = greeted(tmp_path / str(share), config)
        assert serve(paths, Machine(), Verb.ROUND, before).code is Code.DONE
        counts, *_, moments = open_site(paths).account.entries
        assert counts.charge.recipient == "server"
        noises.append(moments.event.noise_multiplier)
    assert noises[0] > 1.5 * noises[1]


@pytest.mark.thorough
def test_a_table_has_models_of_its_public_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lone = []
    monkeypatch.setattr(finish, "alone", lambda *given: lone.append(alone(*given)) or lone[-1])
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=400)
    rows = [f"{a:.3f},{b:.3f},{c}" for a, b, c in zip(y + rng.normal(size=400), y, y, strict=True)]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["a,b,label", *rows]))
    data = {"dataset": str(path), "limit": None, "public_fraction": 0.2}
    config = joined_config(data=data, privacy={"delta": 1e-3}, federation={"baselines": True})
    carry_out(tmp_path / "run", config)
    # What joining must beat has it, too.
    models = {"forest", "logistic"}
    assert all(models <= {*rival.average.shares()} for rival in lone)
    assert len(lone) == len(read_sites(tmp_path / "run"))
    for paths in read_sites(tmp_path / "run"):
        report = SiteReport.read(paths.home)
        assert models <= {*report.shares}
        assert report.steps.joined > 0.9
        kept = read_predictor(predictor_file(paths.home)).candidates
        assert kept.forest is not None
        assert kept.logistic is not None
        older = {k: v for k, v in report.to_json().items() if k != "candidates"}
        write_json(report_file(paths.home), older)
        assert SiteReport.read(paths.home).candidates == {}


@pytest.mark.slow
def test_a_site_that_was_away_for_the_answer_gets_it_later(tmp_path: Path):
    config, run = joined_config(), tmp_path / "run"
    prepare(run, config, resume=False)
    paths = read_sites(run)[1]
    away = paths.folder.with_name("away")

    class Leaves(InProcess):
        """A site goes away before it has the answer."""

        def call(self, verb: Verb, messages: Any) -> Any:
            if verb is Verb.FINISH and paths.folder.exists():
                paths.folder.rename(away)
            return super().call(verb, messages)

    with Leaves(read_sites(run), 1) as engine:
        exchange_stage(OpenRun(run, config, engine))
    away.rename(paths.folder)
    assert not has_head(paths.home)
    carry_out(run, config)
    mechanisms = [e.charge.mechanism for e in open_site(paths).account.entries]
    assert mechanisms == ["label-histogram", "moments", "dp-sgd"]
    assert SiteReport.read(paths.home).steps.joined > 0.3


def test_a_message_that_was_written_before_a_death_is_the_one_that_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    paths, before = greeted(tmp_path / "run", joined_config())

    def die(state: JoinedState, site: Site) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(JoinedState, "write", die)
        with pytest.raises(KeyboardInterrupt):
            serve(paths, Machine(), Verb.ROUND, before)
    written = sent_file(paths.home, 1).read_bytes()
    assert serve(paths, Machine(), Verb.ROUND, before).release == written
    assert len(open_site(paths).account.entries) == 2


def test_noise_that_is_given_must_fit_beside_the_release(tmp_path: Path):
    for noise, code in ((0.1, Code.NO_BUDGET), (60.0, Code.DONE)):
        config = joined_config(training={"noise_multiplier": noise})
        paths, before = greeted(tmp_path / str(noise), config)
        assert serve(paths, Machine(), Verb.READY, before).code is code
        assert open_site(paths).account.entries == ()


def test_a_single_public_sample_is_refused_before_anything_is_charged(tmp_path: Path):
    with pytest.raises(BadInput, match="public samples for networks to learn from, got 1"):
        prepare(tmp_path / "run", joined_config(data={"public_limit": 1}), resume=False)
    assert not (tmp_path / "run").exists()
