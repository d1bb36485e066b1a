import json
from pathlib import Path

import pytest

from dprbft.secure_sum.identity import new_key, public_of
from dprbft.secure_sum.party import Party
from dprbft.secure_sum.session import Session
from dprbft.secure_sum.signing import check_own_key, signing_of
from panas.runtime.errors import BadInput

NAMES = ("north", "east", "south", "west")
TOLD = "0" * 64


def keyed(folder: Path, keys: dict[str, bytes]) -> dict[str, Path]:
    """A folder for each site, with its key and the public ones of all."""
    public = {name: public_of(key).decode() for name, key in keys.items()}
    for name, key in keys.items():
        (folder / name).mkdir()
        (folder / name / "node.key").write_bytes(key)
        about = {"site": name, "hub": "127.0.0.1:8000", "sites": public}
        (folder / name / "federation.json").write_text(json.dumps(about))
    return {name: folder / name for name in keys}


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    return keyed(tmp_path, {name: new_key() for name in NAMES})


def test_sites_know_each_other_by_their_node_keys(folders: dict[str, Path]):
    session = Session(b"x", (0, 1, 2, 3), 1)
    signings = [signing_of(folders[name], NAMES, i, "trial", TOLD) for i, name in enumerate(NAMES)]
    parties = {i: Party.new(session, i, s) for i, s in enumerate(signings)}
    keys = {i: p.keys() for i, p in parties.items()}
    parties[0].shares(keys)
    # East signs as south: its own key does not make it another site.
    forged = Party.new(session, 2, signings[1]).keys()
    with pytest.raises(BadInput, match="signed by site 2 itself"):
        parties[3].shares(keys | {2: forged})


def test_a_site_with_an_older_list_refuses_a_sum_with_one_that_it_does_not_know(
    folders: dict[str, Path],
):
    """Until its owner accepts: a hub that names a new site gets no sum with it in."""
    known = folders["north"] / "federation.json"
    new, about = known.read_text(), json.loads(known.read_text())
    del about["sites"]["west"]
    known.write_text(json.dumps(about))
    session = Session(b"x", (0, 1, 2, 3), 1)

    def party(i: int) -> Party:
        return Party.new(session, i, signing_of(folders[NAMES[i]], NAMES, i, "trial", TOLD))

    keys = {i: party(i).keys() for i in range(1, 4)}
    behind = party(0)
    with pytest.raises(BadInput, match="signed by site 3 itself"):
        behind.shares({0: behind.keys(), **keys})
    known.write_text(new)
    accepted = party(0)
    accepted.shares({0: accepted.keys(), **keys})


def test_numbers_without_a_name_or_key_sign_nothing(folders: dict[str, Path]):
    signing = signing_of(folders["north"], (*NAMES, "stranger"), 0, "trial", TOLD)
    signature = signing.sign(b"content")
    assert signing.verify(0, b"content", signature)
    assert not any(signing.verify(i, b"content", signature) for i in (-1, 1, 2, 4, 5, 99))
    assert not signing.verify(0, b"contents", signature)


def test_a_signature_holds_in_one_run_of_the_same_sites_alone(folders: dict[str, Path]):
    """Else a hub could have several lists of one sum signed, one a run."""
    signature = signing_of(folders["north"], NAMES, 0, "trial", TOLD).sign(b"list")

    def holds(run: str, names: tuple[str, ...], summed: str = TOLD) -> bool:
        return signing_of(folders["east"], names, 1, run, summed).verify(0, b"list", signature)

    assert holds("trial", NAMES)
    assert not holds("decoy", NAMES)
    assert not holds("trial", ("north", "east", "west", "south"))
    assert not holds("trial", NAMES[:3])
    assert not holds("trial", NAMES, "1" * 64)  # told another map, say


@pytest.mark.parametrize(
    ("names", "site"), [(NAMES, 1), (("north", "north"), 0), (NAMES, 4), ((), 0)]
)
def test_a_run_that_names_sites_otherwise_is_refused(
    folders: dict[str, Path], names: tuple[str, ...], site: int
):
    with pytest.raises(BadInput, match="expected a"):
        signing_of(folders["north"], names, site, "trial", TOLD)


@pytest.mark.parametrize("lacking", ["node.key", "federation.json"])
def test_a_site_without_keys_takes_no_part(folders: dict[str, Path], lacking: str):
    (folders["north"] / lacking).unlink()
    with pytest.raises(BadInput, match="panas deploy init"):
        signing_of(folders["north"], NAMES, 0, "trial", TOLD)


@pytest.mark.parametrize("more", ["", "\n"])
def test_two_sites_with_one_key_are_refused(more: str, tmp_path: Path):
    key = new_key()
    folders = keyed(tmp_path, {"north": key, "east": key})
    known = folders["north"] / "federation.json"
    about = json.loads(known.read_text())
    about["sites"]["east"] += more
    known.write_text(json.dumps(about))
    with pytest.raises(BadInput, match="got one twice"):
        signing_of(folders["north"], ("north", "east"), 0, "trial", TOLD)


@pytest.mark.parametrize("text", ["", "[]", '{"site": "north"}', '{"site": 1, "sites": [2]}'])
def test_a_damaged_list_of_sites_is_refused(folders: dict[str, Path], text: str):
    (folders["north"] / "federation.json").write_text(text)
    with pytest.raises(BadInput, match="expected"):
        signing_of(folders["north"], NAMES, 0, "trial", TOLD)


@pytest.mark.parametrize("content", [b"", b"junk", None])
def test_a_node_does_not_begin_with_a_key_that_is_not_its_own(
    folders: dict[str, Path], content: bytes | None
):
    check_own_key(folders["north"])
    (folders["north"] / "node.key").write_bytes(new_key() if content is None else content)
    with pytest.raises(BadInput, match="expected"):
        check_own_key(folders["north"])
    (folders["north"] / "federation.json").unlink()
    if content is None:
        check_own_key(folders["north"])  # nothing to compare with
