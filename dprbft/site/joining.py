"""Joining a run: whether the owner allows it, the budget holds it, and the data fit.

Before anything is charged, the owner hears whether other ledgers were charged for the same samples
(`dprbft.site.results.seen`).
"""

from dprbft.config.bounds import check_bounds
from dprbft.config.schema import RunConfig
from dprbft.messages import Hello, facts_text
from dprbft.paths import (
    SitePaths,
    book_file,
    declared_file,
    hello_file,
    samples_file,
    seen_file,
)
from dprbft.site.data import is_built_in, load_data
from dprbft.site.directory import SiteSettings, read_site, site_ledger
from dprbft.site.embeddings import check_encoder
from dprbft.site.federations import membership
from dprbft.site.results.seen import look_back
from dprbft.site.site import check_book, config_of, facts_of, note_book, public_of
from dprbft.wire import own_version
from panas.data.facts import Facts
from panas.privacy.budget import Budget
from panas.privacy.unit import unit_name
from panas.runtime.errors import BadInput
from panas.runtime.store import read_json, write_bytes


def join(paths: SitePaths, content: bytes) -> None:
    """Answer a hello: ask the ledger for the run's share, check the data, and note the run.

    BudgetExhausted if the lifetime budget does not hold the share; no sample was read. BadInput if
    settings or data do not fit; nothing was charged.
    """
    hello, settings = Hello.from_bytes(content), read_site(paths.folder)
    config, facts = approved(paths, hello)
    noted = hello_file(paths.home)
    if noted.is_file():
        known = Hello.from_bytes(noted.read_bytes())
        facts_of_run = (known.site, known.config, known.facts)
        if facts_of_run != (hello.site, hello.config, hello.facts):
            raise BadInput(
                f"expected another name of the run than {paths.run}, which was a run of other "
                "settings here; give another directory"
            )
    ledger = check_book(paths)
    ledger.open_account(
        settings.budget,
        allow_unprotected=settings.allow_unprotected,
        subsets=("train", "search"),
        unit=unit_name(settings.group),
        replicated=not is_built_in(paths, config),
    )
    ledger.begin_run(paths.run, config.budget(paths.index))
    if not noted.is_file():
        public = [public_of(path, facts) for path in (hello.public, hello.unlabelled)]
        data = load_data(paths, config, facts, public)
        look_back(paths, config, data, ledger)
    else:
        note_book(paths, ledger)  # from here on, `leave` changes nothing
    write_bytes(noted, content)


def approved(paths: SitePaths, hello: Hello) -> tuple[RunConfig, Facts]:
    """Settings and facts of a run that the site's owner allows; nothing is read but site.toml.

    BadInput if the hello is to another site, does not decode, or asks for what `site.toml` does not
    allow.
    """
    if (hello.site, hello.run) != (paths.index, paths.asked):
        raise BadInput(
            f"expected a hello to site {paths.index} in run {paths.asked}, got one to site "
            f"{hello.site} in run {hello.run}; ask the site that it is for"
        )
    try:
        config, facts = config_of(hello.config), facts_of(hello.facts)
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as e:
        raise BadInput(
            f"expected settings and facts that panas {own_version()} has, in a hello, got others "
            f"of panas {hello.version:.40}; use one version of panas everywhere"
        ) from e
    if (config.model_dump_json(), facts_text(facts)) != (hello.config, hello.facts):
        raise BadInput(
            "expected settings and facts in their one form, got others in a hello of panas "
            f"{hello.version:.40}; use one version everywhere, as {own_version()}"
        )
    if not paths.index < config.federation.clients:
        raise BadInput(
            f"expected a run in which site {paths.index} is one of the sites, got one of "
            f"{config.federation.clients} sites; ask for the right one"
        )
    check_bounds(config, facts)
    settings, share = read_site(paths.folder), config.budget(paths.index)
    membership(paths.folder, settings.federation, paths.run)
    _check_consent(settings, config, share, hello.version)
    _check_declared(paths, config, facts)
    check_encoder(paths.folder, settings, facts)
    return config, facts


def check_allowed(paths: SitePaths) -> None:
    """Refuse to go on with a run that the owner allows no more; of the site only `site.toml` and
    the ledger are read.

    BadInput if `site.toml` has changed since the hello, and refuses it now.
    """
    noted = hello_file(paths.home)
    if not noted.is_file():
        return  # not joined: whoever opens the site says so
    hello, settings = Hello.from_bytes(noted.read_bytes()), read_site(paths.folder)
    config = config_of(hello.config)
    membership(paths.folder, settings.federation, paths.run)
    _check_consent(settings, config, config.budget(paths.index), hello.version)
    ledger = site_ledger(paths.folder, paths.run)
    if ledger.is_open and ledger.account().budget != settings.budget:
        raise BadInput(
            "expected the budget for life that the ledger was opened with, got another in "
            "site.toml; give the same again"
        )


def _check_declared(paths: SitePaths, config: RunConfig, facts: Facts) -> None:
    """Refuse facts that are not those which the owner has declared; no sample is read for it.

    A run may have more classes than a site, and a table's columns in another order. All else, as
    the scale of a column or the depth of pictures, is computed on private samples: whoever could
    choose it would test by refusals, or by NaN, what a site's samples hold.
    """
    path = declared_file(paths.folder)
    if not path.is_file():
        if not config.federation.remote:
            return  # made by this run, of the run's facts
        raise BadInput(f"expected {path.name} at the site, found none; `panas site init` writes it")
    own = Facts.from_json(read_json(path))
    different = own.differs_from(facts)
    if not different and (lacking := set(own.class_names) - set(facts.class_names)):
        different = f"no class {min(lacking)!r:.80}"
    if different:
        raise BadInput(
            f"expected the facts that {path.name} declares, got {different}; agree on them with "
            "the hub: `panas site declare` takes the run's"
        )


def leave(paths: SitePaths, content: bytes) -> None:
    """Take back a hello which the run was refused after, at another site or here.

    Nothing is changed unless it is the only one that the run has said, and nothing was asked or
    charged since. The ledger keeps the line of a run that has begun: it sets nothing aside.
    """
    noted = hello_file(paths.home)
    if noted.is_file() and noted.read_bytes() == content and not book_file(paths.home).exists():
        ledger = check_book(paths)
        account = ledger.account()
        if not account.of_run(paths.run).entries:
            noted.unlink()
            for note in (seen_file, samples_file):
                note(paths.home).unlink(missing_ok=True)
    if paths.home.is_dir() and not any(paths.home.iterdir()):
        paths.home.rmdir()


def _check_trust(settings: SiteSettings, config: RunConfig) -> None:
    """Refuse a run in which more could be seen of a release than the owner has allowed."""
    f, summed = config.federation, config.secure_sum
    if settings.trust == "secure-sum" and config.leaves and not summed:
        raise BadInput(
            "expected a run with privacy.trust = secure-sum, which site.toml asks for, got one "
            "without; set it, or allow trust = server there"
        )
    if summed and f.secure_minimum < settings.secure_minimum:
        raise BadInput(
            f"expected a secure sum over at least {settings.secure_minimum} sites, which "
            f"site.toml asks for, got one over {f.secure_minimum}; raise "
            "federation.secure_minimum, or lower secure_minimum there"
        )
    if summed:
        settings.check_missing(f.secure_missing_of(f.clients))


def _check_share(settings: SiteSettings, share: Budget) -> None:
    """Refuse a share that is too large in the owner's terms: at the delta of site.toml."""
    if share.private and share.delta > settings.delta:
        raise BadInput(
            f"expected a run of delta {settings.delta:g} at most, which site.toml names, got one "
            f"of {share.delta:g}; lower privacy.delta"
        )
    most, own = settings.epsilon_per_run, share.at(settings.delta)
    if most is not None and own.epsilon > most:
        there = "" if own == share else f", which is epsilon {share.epsilon:g} at {share.delta:g}"
        raise BadInput(
            f"expected a run of epsilon {most:g} at most at delta {settings.delta:g}, which "
            f"site.toml allows, got one of {own.epsilon:g}{there}; ask for less, or raise "
            "epsilon_per_run there"
        )


def _check_consent(settings: SiteSettings, config: RunConfig, budget: Budget, version: str) -> None:
    """Refuse a run that does, costs or lets leave what the owner has not allowed."""
    method = config.federation.method
    if settings.methods and method not in settings.methods:
        raise BadInput(
            f"expected a run of method {' or '.join(settings.methods)}, which site.toml allows, "
            f"got {method}; choose another, or name it there"
        )
    _check_trust(settings, config)
    if not settings.takes_version(version):
        raise BadInput(
            f"expected a run led by panas {' or '.join(settings.versions)}, which site.toml "
            f"allows, got one led by {version:.40}; use that version, or name this one there"
        )
    _check_share(settings, budget)
    if any(name not in settings.releases for name in config.leaves):
        raise BadInput(
            f"expected releases of {', '.join(settings.releases) or 'nothing'} alone, which "
            f"site.toml allows, got a run that sends {' and '.join(config.leaves)}; choose others, "
            "or name them there"
        )
    if config.privacy.allow_unprotected and not settings.allow_unprotected:
        raise BadInput(
            "expected a protected run, got privacy.allow_unprotected = true, which site.toml does "
            "not allow; leave it out, or allow it there"
        )
