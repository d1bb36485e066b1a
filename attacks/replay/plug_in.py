"""A mechanism of a user's own, from FILE.py:NAME: a `Mechanism`, or a module that is a kind of
release, FILE.py alone. Loading runs the file's code."""

import sys
from pathlib import Path
from types import ModuleType

from attacks.replay.mechanism import Mechanism
from attacks.replay.own import kind_mechanism
from panas.privacy.release.kind import ReleaseKind, is_noised
from panas.runtime.errors import BadInput

EXAMPLE = "Mechanism(name=..., run=..., noise_multiplier=...) of attacks.replay.mechanism"


def load_mechanism(text: str) -> Mechanism:
    """The mechanism that FILE.py:NAME, or FILE.py, stands for; BadInput if there is none."""
    file, _, name = text.partition(".py:")
    path = Path(file if file.endswith(".py") else f"{file}.py")
    if not path.is_file():
        raise BadInput(
            f"expected a mechanism as FILE.py:NAME, got {text!r}; name a file that exists"
        )
    module = _loaded(path)
    found = getattr(module, name, None) if name else module
    if isinstance(found, Mechanism):
        return found
    if found is not None and isinstance(found, ReleaseKind) and is_noised(found):
        if not (found.SENSITIVITY or 0.0) > 0:
            raise BadInput(f"expected a SENSITIVITY above 0 of {path.name}, got none; state it")
        return kind_mechanism(path.stem, found)
    raise BadInput(
        f"expected a Mechanism or a noised kind of release as {text!r}, got "
        f"{type(found).__name__ if found is not None else 'nothing'}; write {EXAMPLE}"
    )


def _loaded(path: Path) -> ModuleType:
    """The file's code as it is now: no bytecode of an earlier version is read, and none written."""
    module = ModuleType(f"audited_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their own module up
    try:
        exec(compile(path.read_bytes(), path, "exec"), module.__dict__)
    except Exception as e:
        raise BadInput(
            f"expected Python code in {path}, got {type(e).__name__}: {e!s:.80}; mend the file"
        ) from e
    return module
