"""`panas site`: what an owner is told of groups and of classes, and what nobody else is."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ledgers import MOMENTS, charge
from PIL import Image

from dprbft.config.files import build_config
from dprbft.engines.deploy.folders import Deployment, make_deployment
from dprbft.paths import SitePaths
from dprbft.site.data import SiteData, divided, load_samples
from dprbft.site.directory import read_site
from dprbft.site.results.seen import SeenSamples
from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.privacy.accounting.closed_form import gaussian_multiplier
from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import Gaussian
from panas.privacy.budget import Budget
from panas.privacy.ledger.charge import SecureSum
from panas.privacy.ledger.fingerprints import remember
from panas.privacy.ledger.ledger import Ledger
from panas.runtime.state import state_folder
from panas.runtime.store import read_json, write_json

BUDGET = ("--epsilon", "8", "--delta", "1e-4")


def pictures(count: int, classes: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    x = np.random.default_rng(seed).integers(0, 256, (count, 8, 8), dtype=np.uint8)
    return {"images": x, "labels": np.arange(count) % classes}


def saved(path: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    np.savez(path, **arrays)
    return path


def north(cli: Callable, folder: Path, *options: str, budget: Sequence[str] = BUDGET) -> Path:
    """A site of 60 pictures."""
    data, site = saved(folder / "a.npz", pictures(60)), folder / "north"
    assert cli("site", "init", site, "--data", data, *budget, *options).code == 0
    return site


def opened(site: Path) -> Ledger:
    """Its ledger, with an account."""
    ledger = Ledger(site / "ledger.jsonl")
    ledger.open_account(Budget(8.0, 1e-4))
    return ledger


def patients_of(split: SiteData) -> list[set[int]]:
    parts = (split.search, split.train, split.validation, split.test)
    return [set() if p.groups is None else set(p.groups.tolist()) for p in parts]


def test_an_owner_is_shown_what_samples_had_cost_elsewhere(cli: Callable, tmp_path: Path):
    data = saved(tmp_path / "a.npz", pictures(80))
    for name in ("north", "east"):
        made = cli("site", "init", tmp_path / name, "--data", data, "--strict", *BUDGET)
        assert made.code == 0
        assert "no run, if another ledger" in made.out
    assert json.loads(cli("site", "show", tmp_path / "east", "--json").out)["strict"] is True
    ledger = Ledger(tmp_path / "east" / "ledger.jsonl", "first")
    ledger.open_account(Budget(8.0, 1e-4))
    ledger.begin_run("first", Budget(2.0, 1e-4))
    seen = SeenSamples(80, 20, 1, 1.5, 3.5, (str(tmp_path / "north" / "ledger.jsonl"),))
    write_json(tmp_path / "east" / "runs" / "first" / "seen.json", asdict(seen))
    told = cli("site", "show", tmp_path / "east").out
    assert "before first, 20 of 80 samples have spent up to epsilon 1.50 in 1 earlier run" in told
    (run,) = json.loads(cli("site", "show", tmp_path / "east", "--json").out)["runs"]
    assert (run["seen_before"]["overlap"], run["seen_before"]["together"]) == (20, 3.5)


@pytest.mark.parametrize("official", [False, True])
def test_a_site_of_pictures_has_its_patients_as_units(
    official: bool, cli: Callable, tmp_path: Path
):
    whose = {"train": np.arange(80) // 4, "val": 100 + np.arange(20) // 4, "test": [200] * 20}
    plain = pictures(120) | {"patient": np.array([f"p{k // 4}" for k in range(120)])}
    parts = {
        f"{part}_{key}": values
        for part, patient in whose.items()
        for key, values in (pictures(len(patient)) | {"patient": np.array(patient)}).items()
    }
    data, site = saved(tmp_path / "a.npz", parts if official else plain), tmp_path / "north"
    made = cli("site", "init", site, "--data", data, "--group", "patient", *BUDGET)
    units = 20 + 5 + 1 if official else 30
    assert (made.code, made.err) == (0, "")
    assert f"unit      one group: patient ({units} of them)" in made.out
    shown = json.loads(cli("site", "show", site, "--json").out)
    assert (shown["samples"], shown["units"]) == (120, units)
    assert shown["unit"] == "one group: patient"
    facts = Facts.from_json(read_json(site / "facts.json"))
    samples = load_samples(site, read_site(site), facts)
    paths = SitePaths(0, "north", site, "r")
    split = divided(paths.index, paths.name, samples, b"key", build_config())
    patients = patients_of(split)
    assert sum(map(len, patients)) == len(set.union(*patients)) == units
    assert not official or (len(split.validation), len(split.test)) == (20, 20)


def test_a_site_s_card_calls_it_by_its_name(cli: Callable, tmp_path: Path):
    data, site = saved(tmp_path / "a.npz", pictures(60)), tmp_path / "folder"
    assert cli("site", "init", site, "--name", "north", "--data", data, *BUDGET).code == 0
    Ledger(site / "ledger.jsonl").open_account(Budget(8.0, 1e-4))
    assert cli("ledger", site).out.startswith("site north: epsilon = 0.000 of 8.000")


@pytest.mark.slow
def test_what_a_site_has_spent_in_a_secure_sum_says_what_that_rests_on(
    cli: Callable, tmp_path: Path
):
    site = north(cli, tmp_path)
    ledger, trust = Ledger(site / "ledger.jsonl"), SecureSum(sites=4, missing=1, local=1.0)
    ledger.open_account(Budget(8.0, 1e-4))
    rests = "as long as at most 1 of 4 sites collude with the server or are missing; against all "
    for command in (("site", "show", site), ("deploy", "status", "--site", site)):
        assert "as long as" not in cli(*command).out
    ledger.charge(replace(MOMENTS, event=Gaussian(2.0), trust=trust))
    spent = ledger.account().local.spent()
    for command in (("site", "show", site), ("deploy", "status", "--site", site)):
        said = " ".join(cli(*command).out.split())
        assert f"{rests}other sites together: epsilon = {spent:.3f}" in said


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "where secure, over at least 3 sites"),
        (
            {"secure_minimum": 5, "secure_missing": 1},
            "where secure, over at least 5 sites; this site is protected even where 1 of the "
            "others helps the server or is missing",
        ),
        (
            {"secure_minimum": 7, "secure_missing": 2},
            "where secure, over at least 7 sites; this site is protected even where 2 of the "
            "others help the server or are missing",
        ),
    ],
)
def test_an_owner_reads_which_secure_sums_a_site_sends_to(
    changes: dict[str, int], says: str, cli: Callable, tmp_path: Path
):
    site = north(cli, tmp_path)
    path = site / "site.toml"
    kept = [line for line in path.read_text().splitlines() if not line.startswith("secure_")]
    path.write_text("\n".join([*(f"{key} = {n}" for key, n in changes.items()), *kept]))
    assert f"sums {says}" in " ".join(cli("site", "show", site).out.split())


@pytest.mark.parametrize(("most", "asks"), [((), "8.000"), (("--epsilon-per-run", "2"), "2.000")])
def test_a_run_may_ask_for_what_is_left_and_no_more_than_its_owner_allows(
    most: tuple[str, ...], asks: str, cli: Callable, tmp_path: Path
):
    site = north(cli, tmp_path, *most)
    for command in (("site", "show", site), ("deploy", "status", "--site", site)):
        shown = " ".join(cli(*command).out.split())
        assert f"0.000 spent, a run may ask for {asks}" in shown


@pytest.mark.slow
def test_what_runs_asked_for_and_spent_is_at_the_owner_s_delta(cli: Callable, tmp_path: Path):
    site = north(cli, tmp_path, budget=("--epsilon", "8", "--delta", "1e-6"))
    ledger = Ledger(site / "ledger.jsonl")
    ledger.open_account(Budget(8.0, 1e-6))
    run = ledger.begin_run("first", Budget(1.0, 9e-3))  # from before such a delta was refused
    event = Gaussian(gaussian_multiplier(0.99, 9e-3))
    run.charge(replace(MOMENTS, event=event))
    spent = epsilon([event], 1e-6)
    assert spent > 2.3
    for command in (("site", "show", site), ("deploy", "status", "--site", site)):
        assert f"first      2.369  {spent:.3f}" in cli(*command).out
        (told,) = json.loads(cli(*command, "--json").out)["runs"]
        assert (told["share"], told["spent"]) == (pytest.approx(2.3686, abs=1e-4), spent)
    card = " ".join(cli("ledger", site).out.split())
    assert f"run first: epsilon = {spent:.3f} of 2.369 that it asked for" in card
    (told,) = json.loads(cli("ledger", site, "--json").out)["runs"]
    assert (told["delta"], told["spent"]) == (1e-6, spent)


@pytest.mark.slow
def test_an_owner_accepts_a_restored_ledger_with_what_it_lacks(cli: Callable, tmp_path: Path):
    site = north(cli, tmp_path)
    ledger = opened(site)
    assert cli("site", "accept", site).code == 2
    refused = cli("site", "accept", site, "--restored")
    assert (refused.code, len(refused.err.splitlines())) == (2, 1)
    assert "leave out --restored" in refused.err
    shutil.copytree(site, tmp_path / "backup")
    for noise in (2.0, 3.0):
        charge(ledger, Gaussian(noise))
    spent = ledger.account().spent()
    for file in (tmp_path / "backup").iterdir():
        shutil.copy2(file, site)
    for command in (("site", "show", site), ("deploy", "status", "--site", site)):
        said = " ".join(cli(*command).out.split())
        assert "an older copy, as of a backup: it lacks charges, and nothing can be spent" in said
        assert f"panas site accept {site} --restored" in said
    card = cli("ledger", site)
    assert (card.code, "nothing can be spent" in " ".join(card.out.split())) == (0, True)
    assert json.loads(cli("ledger", site, "--json").out)["copy"] is True
    done = cli("site", "accept", site, "--restored")
    assert done.code == 0
    assert f"2 missing charges put back; epsilon {spent:.3f} of 8.000 is spent" in done.out
    assert "it was charged what it lacked" in " ".join(cli("site", "show", site).out.split())
    assert json.loads(cli("ledger", site, "--json").out)["restored"] == 2
    missing = cli("site", "accept", tmp_path, "--restored")
    assert (missing.code, len(missing.err.splitlines())) == (2, 1)


@pytest.mark.slow
def test_an_owner_reads_that_a_machine_knows_nothing_of_a_ledger(cli: Callable, tmp_path: Path):
    site = north(cli, tmp_path)
    ledger = opened(site)
    assert "known" not in cli("site", "show", site).out
    charge(ledger, Gaussian(9.0))
    assert "warning" not in cli("site", "show", site).out
    shutil.rmtree(state_folder())
    assert "nothing is known of it in " in " ".join(cli("site", "show", site).out.split())
    charge(ledger, Gaussian(9.0))
    said = " ".join(cli("site", "show", site).out.split())
    assert "where nothing was known of it" in said


def test_an_owner_reads_that_the_data_were_halved(cli: Callable, tmp_path: Path):
    site, whole = tmp_path / "north", pictures(60)
    data = saved(tmp_path / "a.npz", whole)
    assert cli("site", "init", site, "--data", data, *BUDGET).code == 0
    ledger = opened(site)
    x = torch.from_numpy(whole["images"])[:, None]
    remember(Samples(x, torch.from_numpy(whole["labels"]), 2), ledger)
    assert "warning" not in cli("site", "show", site).out
    saved(tmp_path / "a.npz", {name: values[:30] for name, values in whole.items()})
    said = " ".join(cli("site", "show", site).out.split())
    assert "30 of 60 samples are gone, and 0 of 30 are new" in said
    (note,) = json.loads(cli("site", "show", site, "--json").out)["notes"]
    assert "30 of 60" in note


def test_a_folder_of_pictures_has_no_groups_without_a_table(cli: Callable, tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        Image.new("L", (8, 8)).save(tmp_path / "data" / name / "patient-1.png")
    data = tmp_path / "data"
    made = cli("site", "init", tmp_path / "s", "--data", data, "--group", "patient", *BUDGET)
    assert (made.code, len(made.err.splitlines())) == (2, 1)
    assert "add metadata.csv to it" in made.err


def test_its_owner_alone_hears_that_a_site_has_one_class(cli: Callable, tmp_path: Path):
    data, site = saved(tmp_path / "a.npz", pictures(60, classes=1)), tmp_path / "north"
    made = cli("site", "init", site, "--data", data, *BUDGET)
    assert made.code == 0
    (line,) = made.err.splitlines()
    assert line.startswith("warning: north: all samples are of one class")
    assert "names that class alone" in line
    # The owner declares all classes of the federation; the samples are still of one.
    site = tmp_path / "again"
    options = ("--name", "north", "--classes", "0, 1", *BUDGET)
    (line,) = cli("site", "init", site, "--data", data, *options).err.splitlines()
    assert read_json(site / "facts.json")["class_names"] == ["0", "1"]
    assert line == "warning: north: all samples are of one class, so its accuracy will say little"
    shown = cli("site", "show", site, "--json")
    assert "one class" in shown.err
    for said in (shown.out, *(p.read_bytes().decode("latin-1") for p in site.rglob("*.*"))):
        assert "one class" not in said
    both = saved(tmp_path / "b.npz", pictures(60))
    assert cli("site", "init", tmp_path / "south", "--data", both, *BUDGET).err == ""


def test_an_owner_is_shown_how_many_rows_do_not_fit(cli: Callable, tmp_path: Path):
    held, path = pictures(60), tmp_path / "a.npz"
    site, held["images"] = tmp_path / "north", held["images"] / 255
    assert cli("site", "init", site, "--data", saved(path, held), *BUDGET).code == 0
    assert cli("site", "show", site).err == ""
    held["images"][0, 0, 0], held["labels"][1] = np.nan, 7
    saved(path, held)
    shown = cli("site", "show", site)
    assert shown.code == 0
    assert "59 samples" in shown.out
    left, changed = shown.err.splitlines()
    assert "north: 1 of 60 rows do not fit the declared facts and were left out" in left
    assert "north: 1 of 60 rows hold values that do not fit the declared facts" in changed


def test_the_depth_of_a_site_s_deep_pictures_is_declared(cli: Callable, tmp_path: Path):
    deep = pictures(40) | {"images": np.full((40, 8, 8), 3000, np.uint16)}
    data, site = saved(tmp_path / "a.npz", deep), tmp_path / "north"
    refused = cli("site", "init", site, "--data", data, *BUDGET)
    assert refused.code == 2
    assert "`panas site init --bits 16`" in refused.err
    assert cli("site", "init", site, "--data", data, "--bits", "12", *BUDGET).code == 0
    assert Facts.from_json(read_json(site / "facts.json")).bits == 12
    assert cli("site", "show", site).code == 0


def test_a_number_of_samples_is_public_where_the_owner_declares_it(cli: Callable, tmp_path: Path):
    data = saved(tmp_path / "a.npz", pictures(80))
    far = cli("site", "init", tmp_path / "far", "--data", data, "--samples", "800", *BUDGET)
    assert far.code == 2
    assert "got 800 for 80" in far.err
    made = cli("site", "init", tmp_path / "a", "--data", data, "--samples", "80", *BUDGET)
    assert made.code == 0
    assert "80, which is declared public" in made.out
    assert "samples = 80" in (tmp_path / "a" / "site.toml").read_text()


def test_a_run_that_was_refused_before_any_charge_is_not_shown(cli: Callable, tmp_path: Path):
    data = saved(tmp_path / "a.npz", pictures(80))
    cli("site", "init", tmp_path / "a", "--data", data, *BUDGET)
    ledger = opened(tmp_path / "a")
    for name in ("refused", "gone", "going"):
        ledger.begin_run(name, Budget(1.0, 1e-4))
    homes = tmp_path / "a" / "runs"
    write_json(homes / "refused" / "refused.json", {"verb": "ready", "code": "NO_BUDGET"})
    write_json(homes / "going" / "run.json", {})
    shown = json.loads(cli("site", "show", tmp_path / "a", "--json").out)
    assert [run["name"] for run in shown["runs"]] == ["going"]


def test_an_owner_says_how_a_table_is_written(cli: Callable, tmp_path: Path):
    data, site = tmp_path / "a.csv", tmp_path / "north"
    rows = [f"1/{1 + i % 28}/2020;{1 + i % 7}.000,5;{i % 3};{'yn'[i % 2]}" for i in range(60)]
    data.write_text("\n".join(["seen;amount;ward;outcome", *rows]))
    options = ("--data", data, "--label", "outcome", *BUDGET)
    refused = cli("site", "init", site, *options)
    assert (refused.code, site.exists()) == (2, False)
    assert "--dates" in refused.err or "--numbers" in refused.err
    said = ("--dates", "us", "--numbers", "1.234,5", "--texts", "ward")
    assert cli("site", "init", site, *options, *said).code == 0
    facts = Facts.from_json(read_json(site / "facts.json"))
    assert [c.kind for c in facts.columns] == ["date", "number", "text"]
    samples = load_samples(site, read_site(site), facts)
    assert len(samples) == 60
    rows = samples.x.flatten(1)[:7].numpy()
    amounts = [float(facts.columns[1].cell(row[1:4])) for row in rows]
    assert amounts == pytest.approx([1000.0 * i + 0.5 for i in range(1, 8)], rel=1e-3)
    assert cli("site", "show", site).code == 0
    wrong = cli("site", "init", tmp_path / "b", *options, "--numbers", "5")
    assert (wrong.code, "numbers" in wrong.err) == (2, True)


def test_a_site_may_have_a_table_without_a_header(cli: Callable, tmp_path: Path):
    data, site = tmp_path / "a.csv", tmp_path / "north"
    data.write_text("\n".join(f"{i}.5,{i % 2},p{i // 2}" for i in range(60)))
    options = ("--no-header", "--label", "2", "--group", "3")
    made = cli("site", "init", site, "--data", data, *options, *BUDGET)
    assert made.code == 0
    shown = json.loads(cli("site", "show", site, "--json").out)
    assert (shown["samples"], shown["units"], shown["classes"]) == (60, 30, ["0", "1"])


def test_classes_that_differ_in_case_and_rows_that_rise_are_kept_and_told(
    cli: Callable, tmp_path: Path
):
    data = tmp_path / "a.csv"
    labels = ("Yes", "yes", "No")
    data.write_text("\n".join(["glucose,label", *(f"{60 + i},{labels[i % 3]}" for i in range(60))]))
    made = cli("site", "init", tmp_path / "north", "--data", data, *BUDGET)
    assert made.code == 0
    assert "'Yes' and 'yes' differ in case alone" in " ".join(made.err.split())
    facts = Facts.from_json(read_json(tmp_path / "north" / "facts.json"))
    assert [c.name for c in facts.columns] == ["glucose"]
    assert facts.classes == 3


def test_a_site_of_pictures_has_patients_by_its_metadata(cli: Callable, tmp_path: Path):
    rng = np.random.default_rng(0)
    rows = ["file_name,diagnosis,patient"]
    for i in range(40):
        file = tmp_path / "scans" / f"{i}.png"
        file.parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(file)
        rows.append(f"{i}.png,{'ill' if i % 2 else 'well'},{i // 4}")
    (tmp_path / "scans" / "metadata.csv").write_text("\n".join(rows))
    site, named = tmp_path / "north", ("--label", "diagnosis", "--group", "patient")
    made = cli("site", "init", site, "--data", tmp_path / "scans", *named, *BUDGET)
    assert made.code == 0
    shown = json.loads(cli("site", "show", site, "--json").out)
    assert (shown["samples"], shown["units"], shown["classes"]) == (40, 10, ["ill", "well"])


def test_a_site_is_called_as_its_federation_calls_it(cli: Callable, tmp_path: Path):
    """In a container its folder has another name."""
    make_deployment(tmp_path / "f", Deployment(sites=("north", "south")))
    site = (tmp_path / "f" / "sites" / "north").rename(tmp_path / "site")
    data = saved(tmp_path / "own.npz", pictures(20))
    assert cli("site", "init", site, "--data", data, *BUDGET).code == 0
    assert read_site(site).name == "north"
    assert cli("site", "init", tmp_path / "alone", "--data", data, *BUDGET).code == 0
    assert read_site(tmp_path / "alone").name == "alone"


@pytest.mark.parametrize("content", [None, b"{}", {"site": "north"}])
def test_a_file_that_is_no_facts_is_the_owner_s_to_keep(
    content: bytes | dict[str, str] | None, cli: Callable, tmp_path: Path
):
    data, site = saved(tmp_path / "a.npz", pictures(60)), tmp_path / "north"
    facts = data if content is None else tmp_path / "other.json"
    if isinstance(content, dict):
        write_json(facts, content)
    elif content is not None:
        facts.write_bytes(content)
    line = cli("site", "init", site, "--data", data, "--facts", facts, *BUDGET).refusal
    assert f"expected a facts.json as `panas site init` writes it for --facts, got {facts}" in line
    assert "delete" not in line
    assert not site.exists()


def test_labels_that_name_a_row_each_are_not_declared_in_silence(cli: Callable, tmp_path: Path):
    data, site = tmp_path / "a.csv", tmp_path / "north"
    data.write_text("\n".join(["patient,age", *(f"p{i},{30 + i}" for i in range(40))]))
    call = ("site", "init", site, "--data", data, "--label", "patient", *BUDGET)
    line = cli(*call).refusal
    assert "got 40 classes in 40 rows" in line
    assert "p1" not in line
    assert not site.exists()
    assert cli(*call, "--classes", ",".join(f"p{i}" for i in range(40))).code == 0
