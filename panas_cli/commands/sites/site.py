"""`panas site`: make a site's directory, and show one to its owner."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dprbft.config.flat import validated
from dprbft.engines.deploy.settings import FEDERATION, read_federation
from dprbft.messages import Code
from dprbft.paths import (
    SitePaths,
    declared_file,
    refusal_file,
    settings_file,
)
from dprbft.site.data import declared, is_of_one_class, samples_and_values
from dprbft.site.directory import (
    SiteSettings,
    read_site,
    site_account,
    site_ledger,
    write_site,
)
from dprbft.site.embeddings import embedded
from dprbft.site.results.seen import SeenSamples
from panas.data.facts import Facts, given_facts
from panas.data.samples import Samples
from panas.privacy.ledger.account import Account, number
from panas.privacy.ledger.fingerprints import changed_since
from panas.privacy.unit import unit_name
from panas.runtime.device import device_named
from panas.runtime.errors import BadInput
from panas.runtime.store import read_json, write_json
from panas_cli.options import DeclaredBy
from panas_cli.progress import encoding_bar
from panas_cli.text.printing import (
    LABELS,
    counted,
    figure,
    print_json,
    print_label,
    print_text,
    print_words,
)
from panas_cli.text.privacy_card import (
    budget_line,
    hub_lines,
    largest_request,
    print_runs,
    run_rows,
    state_lines,
    trust_lines,
)
from panas_cli.text.sentences import encoder_text, seen_text


def name_of(folder: Path) -> str:
    """What a site is called where nobody says: as its federation does, else as its folder."""
    if (folder / FEDERATION).is_file():
        return read_federation(folder).site
    return folder.resolve().name


def init(folder: Path, settings: dict[str, Any], by: DeclaredBy, *, json: bool) -> None:
    """Make a site's directory; nothing is written where its data or settings are refused.

    Args:
        folder: the new directory.
        settings: fields of `SiteSettings` by name, not checked so far.
        by: public data or facts that the data are declared by.
        json: print one JSON object.
    """
    if settings_file(folder).exists():
        raise BadInput(f"expected a new site directory, got {folder}, which holds a site")
    site = validated(SiteSettings, settings, "panas site init")
    facts, samples = _declared(folder, site, by)
    site.budget.check(samples.units, site.name)
    _check_number(site, samples)
    write_site(folder, site, facts=facts)
    _encode(folder, site, facts, samples)
    _print(folder, site, facts, samples, json=json)


def declare(folder: Path, by: DeclaredBy, *, json: bool) -> None:
    """Declare the data anew; nothing is written where they do not fit.

    Args:
        folder: the site's.
        by: public data or facts that the data are declared by.
        json: print one JSON object.
    """
    site = read_site(folder)
    facts, samples = _declared(folder, site, by)
    write_json(declared_file(folder), facts.to_json())
    _encode(folder, site, facts, samples)
    _print(folder, site, facts, samples, json=json)


def _declared(folder: Path, site: SiteSettings, by: DeclaredBy) -> tuple[Facts, Samples]:
    theirs = None if by.facts is None else given_facts(by.facts)
    return declared(folder, site, public=by.public_data, facts=theirs)


def _encode(folder: Path, site: SiteSettings, facts: Facts, samples: Samples) -> None:
    """Encode the samples now, on the owner's screen: runs find the embeddings in the folder."""
    with encoding_bar() as on_progress:
        embedded(folder, site, samples, facts, on_progress, device_named("auto"))


def show(folder: Path, *, json: bool) -> None:
    """Show the owner what a site holds, what it has spent, and what is left."""
    site = read_site(folder)
    facts = Facts.from_json(read_json(declared_file(folder)))
    samples, values = samples_and_values(folder, site, facts)
    ledger, notes = site_ledger(folder), list[str]()
    if ledger.path.exists():
        changed = changed_since(values, ledger)
        notes = [*state_lines(ledger), *([str(changed)] if changed else [])]
    _print(folder, site, facts, samples, notes, json=json)


def accept(folder: Path, *, json: bool) -> None:
    """Charge what a restored ledger lacks, and say what is spent then."""
    read_site(folder)
    ledger = site_ledger(folder)
    charges = ledger.accept_restored()
    account = ledger.account()
    spent, left = account.spent(), account.left()
    if json:
        record = {"site": str(folder), "charges": charges, "spent": number(spent)}
        print_json(record | {"budget": number(account.budget.epsilon), "left": left})
        return
    print_text(
        f"{ledger.path}: {counted(charges, 'missing charge')} put back; epsilon {figure(spent)} of "
        f"{figure(account.budget.epsilon)} is spent, a run may ask for {figure(left)}"
    )


def _check_number(site: SiteSettings, samples: Samples) -> None:
    """Refuse a declared number that is far from the truth; on the owner's own screen."""
    if site.samples is not None and not samples.units / 2 <= site.samples <= samples.units * 2:
        raise BadInput(
            f"expected about the number of samples or groups that there are, got {site.samples} "
            f"for {samples.units}; leave out --samples, and runs plan with a noised number"
        )


def _print(
    folder: Path,
    site: SiteSettings,
    facts: Facts,
    samples: Samples,
    notes: Sequence[str] = (),
    *,
    json: bool,
) -> None:
    if is_of_one_class(samples):  # told here alone: no file of the site says so
        rest = (
            "; facts.json, which federations see, names that class alone: declare all by --classes"
        )
        warnings.warn(
            f"{site.name}: all samples are of one class, so its accuracy will say little"
            f"{rest if facts.classes == 1 else ''}",
            stacklevel=2,
        )
    account = site_account(folder, site)
    homes = {name: SitePaths(0, site.name, folder, name) for name in account.of_shares()}
    runs = [r for r in run_rows(account) if _stands(homes[r["name"]], account)]
    # What the samples had cost elsewhere before a run.
    seen = {name: x for name, paths in homes.items() if (x := SeenSamples.read(paths.home))}
    if json:
        for run in runs:
            if run["name"] in seen:
                run["seen_before"] = seen[run["name"]].to_json()
        about = {"site": str(folder), "runs": runs, "notes": list(notes)}
        most = site.epsilon_per_run
        allowed = {key: getattr(site, key) for key in ALLOWED}
        allowed["epsilon_per_run"] = None if most is None else number(most)
        print_json(about | _data(site, facts, samples) | allowed | _spent(site, account))
        return
    print_text(f"site {site.name}: {folder}")
    _print_data(site, facts, samples)
    _print_allowed(site)
    print_label("budget", budget_line(site, account))
    for line in hub_lines(site, account):
        print_label("hub", line)
    for line in trust_lines(account, LABELS):
        print_text(line)
    for line in notes:
        print_words(f"warning: {line}")
    print_runs(runs)
    for run in runs:
        if run["name"] in seen:
            print_text(f"warning: before {run['name']}, {seen_text(seen[run['name']])}")


def _stands(paths: SitePaths, account: Account) -> bool:
    """Whether a run goes on or was charged: one that was refused before it was charged is none."""
    if account.of_run(paths.run).entries:
        return True
    refused, code = refusal_file(paths.home), ""
    if refused.is_file():
        code = read_json(refused)["code"]
    return paths.home.is_dir() and code != Code.NO_BUDGET.name


def _data(site: SiteSettings, facts: Facts, samples: Samples) -> dict[str, Any]:
    return {
        "name": site.name,
        "samples": len(samples),
        "unit": unit_name(site.group),
        "units": samples.units,
        "classes": list(facts.class_names),
        "shape": list(facts.shape),
        "encoder": facts.encoder.to_json() if facts.encoder else None,
    }


ALLOWED = (
    *("releases", "methods", "trust", "secure_minimum", "secure_missing", "versions"),
    *("allow_unprotected", "strict", "run_limit", "disk_limit"),
)
"""What the owner allows runs, by the keys of site.toml; `epsilon_per_run` besides."""


def _spent(site: SiteSettings, account: Account) -> dict[str, Any]:
    return {
        "budget": number(site.epsilon),
        "delta": site.delta,
        "spent": number(account.spent()),
        "left": number(largest_request(site, account)),
    }


def _print_data(site: SiteSettings, facts: Facts, samples: Samples) -> None:
    size = " x ".join(str(n) for n in facts.shape)
    what = f"a table of {counted(len(facts.columns), 'column')}" if facts.columns else size
    if facts.vectors:
        what = f"vectors of {counted(facts.shape[2], 'number')}"
    groups = f" ({samples.units:,} of them)" if site.group else ""
    print_label("data", f"{counted(len(samples), 'sample')}; {what}")
    if facts.encoder:
        print_label("encoder", encoder_text(facts.encoder))
    print_label("unit", f"{unit_name(site.group)}{groups}")
    if site.samples is not None:
        print_label("number", f"{site.samples:,}, which is declared public: nothing covers it")
    print_label("declared", f"classes {', '.join(facts.class_names)}: public in a federation")


def _sums(site: SiteSettings) -> str:
    least, t = f"where secure, over at least {site.secure_minimum} sites", site.secure_missing
    if not t:
        return least
    what = "helps the server or is missing" if t == 1 else "help the server or are missing"
    return f"{least}; this site is protected even where {t} of the others {what}"


def _print_allowed(site: SiteSettings) -> None:
    print_label("may leave", ", ".join(site.releases))
    if site.allow_unprotected:
        print_label("privacy", "releases and training without a bound are allowed")
    if site.strict:
        print_label("samples", "no run, if another ledger was charged for some of them")
    if site.methods:
        print_label("methods", f"{', '.join(site.methods)} alone")
    if site.trust == "secure-sum":
        print_label("trust", "a secure sum alone")
    print_label("sums", _sums(site))
    if site.versions:
        print_label("versions", f"runs led by panas {', '.join(site.versions)} alone")
    if site.epsilon_per_run is not None:
        print_label("a run", f"may ask for epsilon {figure(site.epsilon_per_run)} at most")
    print_label(
        "a hub",
        f"may begin {counted(site.run_limit, 'run')}, and leave "
        f"{site.disk_limit:g} GiB here, at most",
    )
