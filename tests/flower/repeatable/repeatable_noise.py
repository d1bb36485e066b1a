"""Noise that depends on the site, and on what it is asked, alone: not on process, order or time."""

import hashlib
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import numpy as np
from torch import Tensor

from panas.privacy.noise import ReproducibleNoise, SystemNoise

CURRENT: ContextVar[ReproducibleNoise] = ContextVar("noise")


def change(verbs: ModuleType) -> None:
    """Let each verb that `dprbft.engines.verbs` serves draw from a generator of its own."""
    answer = verbs._answer

    def repeatable(place: Any, machine: Any, verb: str, content: bytes) -> bytes:
        seed = hashlib.sha256(f"{place.name} {verb}".encode()).digest()
        rng = np.random.default_rng(list(seed))
        CURRENT.set(ReproducibleNoise(rng))
        return answer(place, machine, verb, content)

    verbs._answer = repeatable
    SystemNoise.normal = lambda self, *shape: CURRENT.get().normal(*shape)  # type: ignore
    SystemNoise.uniform = lambda self, size: CURRENT.get().uniform(size)  # type: ignore


def draw(size: int) -> Tensor:
    """Numbers of the generator of the verb that is served now."""
    return CURRENT.get().uniform(size)
