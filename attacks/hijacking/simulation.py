"""FSHA tried: a simulated client and the hijacker talk, and the holder of the truth scores it.

The hijacker (`attacks.hijacking.fsha`) is handed smashed features alone. With a state file a killed
trial goes on as if nothing had happened, but for system noise, which nothing can repeat.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from attacks.hijacking.fsha import (
    FSHAConfig,
    Hijacker,
    SplitClient,
    exchange,
    noise_for,
)
from attacks.reconstruction.metrics import ReconstructionScore, candidates, score
from panas.data.samples import Samples
from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import SampledGaussian
from panas.privacy.budget import Budget
from panas.privacy.gradients.private import ClipAndNoise
from panas.privacy.noise import NoiseSource, SystemNoise
from panas.runtime.errors import BadInput
from panas.runtime.store import read_tensors, under, write_tensors


@dataclass(frozen=True, kw_only=True)
class Hijacked:
    """What the attack achieved."""

    score: ReconstructionScore  # of the reconstructions; its R^2 is against the mean public image
    mean_image_mse: float  # of the mean public image on the same samples: what a blind guess scores
    autoencoder_mse: float  # of f~^-1(f~(x)) on the same samples: what a perfect f would leave
    curve: tuple[tuple[int, float], ...]  # (iteration, MSE of the scored samples)
    seconds: float
    cpu_seconds: float  # wall-clock and processor seconds of the iterations, over all sittings
    epsilon: float
    """Of the *weights* of f, by the client's DP-SGD, at `FSHAConfig.delta`; infinity without.
    It does not cover the smashed features."""
    noise_multiplier: float  # sigma of that DP-SGD; 0 without
    truth: Float[Tensor, "m c h w"]
    reconstructions: Float[Tensor, "m c h w"]


class Trial:
    """A client that trains with a hijacker for a server, and how far the two are.

    Args:
        private: the client's samples, at least a batch.
        public: the hijacker's, of the same shape and domain, at least a batch, none in `private`.
        config: settings; a finite epsilon puts DP-SGD on the client's network.
        rng: of everything but the client's privacy noise.
        noise: Poisson sampling and noise of DP-SGD; None: the system's.
        device: where both ends compute, as torch names it.

    """

    def __init__(
        self,
        private: Samples,
        public: Samples,
        config: FSHAConfig,
        *,
        rng: np.random.Generator,
        noise: NoiseSource | None = None,
        device: str = "cpu",
    ) -> None:
        if private.shape != public.shape:
            raise BadInput(
                f"expected public samples of the private ones' shape {private.shape}, got "
                f"{public.shape}; take them from one domain"
            )
        seeds = [int(s) for s in rng.integers(2**63, size=4)]
        client, server, scored, bootstrap = (np.random.default_rng(s) for s in seeds)
        self._config, self._private, self._public = config, private, public
        self._rngs, self._bootstrap = {"client": client, "server": server}, bootstrap
        self._rate, where = min(1.0, config.batch_size / len(private)), torch.device(device)
        self._defence = _defence(config, len(private), self._rate)
        noise = noise or SystemNoise()
        self._client = SplitClient(
            private, config, defence=self._defence, rng=client, noise=noise, device=where
        )
        self._server = Hijacker(public, config, rng=server, device=where)
        self._networks = nn.ModuleDict(
            {"client": self._client.network, "server": self._server.networks}
        )
        self._optimisers = {"client": self._client.optimiser} | self._server.optimisers
        self._scored = np.sort(scored.permutation(len(private))[: config.scored])
        self._truth = private.inputs(self._scored).to(where)
        self._about = {"how": asdict(config), "seeds": seeds, "data": _digest(private, public)}
        self._iteration, self._seconds, self._cpu_seconds = 0, 0.0, 0.0
        self._curve: list[tuple[int, float]] = []

    def run(
        self, state: Path | None = None, on_progress: Callable[[int, float], None] = lambda *_: None
    ) -> Hijacked:
        """All iterations that are left, and the score of what the hijacker reconstructs.

        Args:
            state: a safetensors file to keep the trial in, and to go on from if it is there.
            on_progress: told of each point of the curve: iteration and MSE.

        """
        if state is not None and state.exists():
            self._load(state)
        config = self._config
        while self._iteration < config.iterations:
            began, busy = time.monotonic(), time.process_time()
            self._set_rates()
            exchange(self._client, self._server)
            self._iteration += 1
            self._seconds += time.monotonic() - began
            self._cpu_seconds += time.process_time() - busy
            last = self._iteration == config.iterations
            if last or self._iteration % config.score_every == 0:
                mse = _mse(self._reconstruct(), self._truth)
                self._curve.append((self._iteration, mse))
                on_progress(self._iteration, mse)
            if state is not None and (last or self._iteration % config.save_every == 0):
                self._save(state)
        return self._result()

    def _result(self) -> Hijacked:
        truth, images = self._truth.cpu(), self._reconstruct().cpu()
        mean_image = self._public.inputs().mean(0)
        config, rng, sigma, spent = self._config, self._bootstrap, 0.0, math.inf
        if self._defence is not None:
            sigma = self._defence.noise_multiplier
            spent = epsilon([SampledGaussian(self._rate, sigma, config.iterations)], config.delta)
        among = candidates(self._private.y[torch.from_numpy(self._scored)], rng=rng)
        return Hijacked(
            score=score("fsha", truth, images, mean_image, rng=rng, among=among),
            mean_image_mse=_mse(mean_image.expand_as(truth), truth),
            autoencoder_mse=_mse(self._server.rehearse(self._truth), self._truth),
            curve=tuple(self._curve),
            seconds=self._seconds,
            cpu_seconds=self._cpu_seconds,
            epsilon=spent,
            noise_multiplier=sigma,
            truth=truth,
            reconstructions=images,
        )

    def _save(self, path: Path) -> None:
        tensors = {f"network.{key}": t for key, t in self._networks.state_dict().items()}
        for name, optimiser in self._optimisers.items():
            for i, slots in optimiser.state_dict()["state"].items():
                tensors |= {f"optimiser.{name}.{i}.{key}": t for key, t in slots.items()}
        record = {
            "iteration": self._iteration,
            "seconds": self._seconds,
            "cpu_seconds": self._cpu_seconds,
            "curve": self._curve,
            "rngs": {name: rng.bit_generator.state for name, rng in self._rngs.items()},
        }
        notes = {"about": json.dumps(self._about), "record": json.dumps(record)}
        write_tensors(path, tensors, notes)

    def _load(self, path: Path) -> None:
        tensors, notes = read_tensors(path)
        if notes.get("about") != json.dumps(self._about):
            raise BadInput(
                f"expected the state of this very attack at {path}, got that of other settings, "
                "seed or samples; delete it or name another file"
            )
        record = json.loads(notes["record"])
        self._networks.load_state_dict(under(tensors, "network."))
        for name, optimiser in self._optimisers.items():
            slots: dict[int, dict[str, Tensor]] = {}
            for key, t in under(tensors, f"optimiser.{name}.").items():
                i, _, slot = key.partition(".")
                slots.setdefault(int(i), {})[slot] = t
            groups = optimiser.state_dict()["param_groups"]
            optimiser.load_state_dict({"state": slots, "param_groups": groups})
        for name, rng in self._rngs.items():
            rng.bit_generator.state = record["rngs"][name]
        self._iteration = record["iteration"]
        self._seconds, self._cpu_seconds = record["seconds"], record["cpu_seconds"]
        self._curve = [(i, mse) for i, mse in record["curve"]]

    def _set_rates(self) -> None:
        config = self._config
        share = 1 - (1 - config.last_rate) * self._iteration / config.iterations
        rates = config.client_rate, config.pilot_rate, config.critic_rate
        for name, rate in zip(("client", "autoencoder", "critic"), rates, strict=True):
            self._optimisers[name].param_groups[0]["lr"] = share * rate

    def _reconstruct(self) -> Tensor:
        return self._server.reconstruct(self._client.smash(self._scored))


def _mse(images: Tensor, truth: Tensor) -> float:
    return float((images - truth).square().mean())


def _defence(config: FSHAConfig, samples: int, rate: float) -> ClipAndNoise | None:
    """The least noise whose epsilon over all iterations is at most the one asked for."""
    if config.epsilon == math.inf:
        return None
    budget = Budget(config.epsilon, config.delta)
    budget.check(samples, "the client")
    sigma = noise_for(budget, rate, config.iterations)
    batch_size = float(min(config.batch_size, samples))
    return ClipAndNoise(clip=config.clip, noise_multiplier=sigma, batch_size=batch_size)


def _digest(*sets: Samples) -> str:
    digest = hashlib.sha256()
    for samples in sets:
        digest.update(f"{samples.x.dtype}{tuple(samples.x.shape)}".encode())
        digest.update(samples.x.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
