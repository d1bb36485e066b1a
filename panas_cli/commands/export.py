"""`panas export`: a site's network as a file for elsewhere, with a model card, where it may leave.

The predictor is no choice: its weights come from validation samples, and it must stay.
"""

from pathlib import Path

from dprbft.run.leaving import promise_of
from dprbft.run.models import SavedModels, models_of
from dprbft.site.results.report import SiteReport
from panas.runtime.errors import BadInput
from panas.runtime.store import write_bytes
from panas.training.checkpoint import SavedNetwork, load_network
from panas.training.export.formats import ENDINGS, Format
from panas.training.export.formats import export as exported
from panas_cli.options import Leaving
from panas_cli.text.model_card import STAYS, Exported, model_card
from panas_cli.text.printing import figure, print_json, print_text, size_text


def export(
    source: Path, site: str | None, form: Format, out: Path | None, leaving: Leaving, as_json: bool
) -> None:
    """Write a network and its card; refuse one that must stay.

    Args:
        source: a run's directory, or a network's file.
        site: by name; None where there is one only.
        form: of the file.
        out: the file; None: named after the site.
        leaving: what the user allows besides.
        as_json: one JSON object of the files in the place of text.
    """
    saved = models_of(source, site)
    network = load_network(saved.file("network"))
    promise = promise_of(saved, network.notes)
    if not promise.may_leave and not leaving.although_it_must_stay:
        raise BadInput(
            f"expected a network that may leave its site, got that of {saved.name}, which must "
            f"stay: {STAYS[promise.covered]}; use it there (`panas predict`), or give "
            "--although-it-must-stay"
        )
    accuracy = _accuracy(saved, network) if leaving.with_accuracy else None
    file = out or Path(saved.name + ENDINGS[form])
    card = _card_of(file, form)
    for path in (file, card):
        if path.exists():
            raise BadInput(
                f"expected no file at {path} yet, got one; give another name as --out, or move it"
            )
    content = exported(network, form, promise.to_json())
    about = Exported(file=file.name, form=form, network=network, promise=promise, accuracy=accuracy)
    write_bytes(card, model_card(about).encode())  # first: no network is without its card
    write_bytes(file, content)
    if as_json:
        print_json({"file": str(file), "card": str(card), **promise.to_json()})
        return
    price = figure(promise.epsilon) if promise.may_leave else "not covered: it must stay"
    print_text(f"network: {file} ({size_text(len(content))}), epsilon {price}")
    print_text(f"model card: {card}")


def _card_of(file: Path, form: Format) -> Path:
    """Where a file's card goes: NAME.md, or NAME.ENDING.md where that is another format's card."""
    stem = file.name.removesuffix(ENDINGS[form])
    card = file.with_name(f"{stem}.md")
    others = (file.with_name(stem + ending) for kind, ending in ENDINGS.items() if kind != form)
    is_of_another = card.exists() and any(other.exists() for other in others)
    return file.with_name(f"{file.name}.md") if is_of_another else card


def _accuracy(saved: SavedModels, network: SavedNetwork) -> float:
    """The network's accuracy on the site's test samples; BadInput if nobody measured it."""
    if saved.site is not None:
        measured = SiteReport.read(saved.site.home).steps.network
    else:
        measured = network.notes.get("accuracy")
    if measured is None:
        raise BadInput(
            f"expected a measured accuracy of {saved.name} for --with-accuracy, got none; leave it "
            "out"
        )
    return float(measured)
