"""FSHA tried: a simulated client and the hijacker talk, and the holder of the truth scores it.

The hijacker (`attacks.hijacking.fsha`) is handed smashed features alone. This module holds both
ends and the truth, as an auditor does. With a file to keep its state in (networks, optimisers,
generators), a trial that was killed goes on as if nothing had happened; only draws of system
noise, which nothing can repeat, are new.
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

from attacks.hijacking.fsha import FSHAConfig, Hijacker
from attacks.hijacking.split_learning import SplitClient, SplitConfig, exchange, noise_for
from attacks.reconstruction.metrics import ReconstructionScore, candidates, score
from panas.data.samples import Samples
from panas.privacy.accounting.epsilon import epsilon
from panas.privacy.accounting.events import SampledGaussian
from panas.privacy.budget import Budget
from panas.privacy.gradients.private import ClipAndNoise
from panas.privacy.noise import NoiseSource, SystemNoise
from panas.runtime.errors import BadInput
from panas.runtime.store import read_tensors, write_tensors


@dataclass(frozen=True, kw_only=True)
class Hijacked:
    """What the attack achieved."""

    score: ReconstructionScore
    """Of the reconstructions, on [-1, 1]; its R^2 is against the mean public image."""
    mean_image_mse: float
    """The mean public image's error on the same samples: what a blind guess scores."""
    autoencoder_mse: float
    """The error of f~^-1(f~(x)) on the same samples: what a perfect f would leave."""
    curve: tuple[tuple[int, float], ...]
    """(iteration, MSE of the scored samples)."""
    iterations: int
    seconds: float
    """Wall-clock seconds of the iterations, over all sittings."""
    cpu_seconds: float
    """Processor seconds of the same: what counts on a machine that others use too."""
    epsilon: float
    """Of the *weights* of f, by the client's DP-SGD, at `FSHAConfig.delta`; infinity without. The
    smashed features are not covered by it."""
    noise_multiplier: float
    """sigma of that DP-SGD; 0 without."""
    truth: Float[Tensor, "m c h w"]
    reconstructions: Float[Tensor, "m c h w"]


@dataclass(frozen=True)
class Progress:
    """A point of the curve, as the callback hears of it."""

    iteration: int
    iterations: int
    mse: float


class Trial:
    """A client that trains with a hijacker for a server, and how far the two are.

    Args:
        private: the client's samples, at least a batch.
        public: the hijacker's, of the same shape and domain, at least a batch, none in `private`.
        config: settings; a finite epsilon puts DP-SGD on the client's network.
        rng: of everything but the client's privacy noise.
        noise: Poisson sampling and noise of DP-SGD; None: the system's.
        device: where both ends compute, as torch names it.

    Raises:
        BadInput: if samples are too few, not finite or of different shapes.

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
        self._defence, where = _defence(config, len(private)), torch.device(device)
        self._client = SplitClient(
            private,
            _client_config(config, self._defence),
            rng=client,
            noise=noise or SystemNoise(),
            device=where,
        )
        self._server = Hijacker(public, config, rng=server, device=where)
        self._networks: dict[str, nn.Module] = {
            "client": self._client.network,
            "server": self._server.networks,
        }
        self._optimisers = {"client": self._client.optimiser} | self._server.optimisers
        self._scored = np.sort(scored.permutation(len(private))[: config.scored])
        self._truth = private.inputs(self._scored).to(where)
        self._about = {"how": asdict(config), "seeds": seeds, "data": _digest(private, public)}
        self._iteration, self._seconds, self._cpu_seconds = 0, 0.0, 0.0
        self._curve: list[tuple[int, float]] = []

    def run(
        self, state: Path | None = None, on_progress: Callable[[Progress], None] = lambda _: None
    ) -> Hijacked:
        """All iterations that are left, and the score of what the hijacker reconstructs.

        Args:
            state: a safetensors file to keep the trial in, and to go on from if it is there.
            on_progress: told of each point of the curve.

        Raises:
            BadInput: if `state` is of another trial.

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
                on_progress(Progress(self._iteration, config.iterations, mse))
            if state is not None and (last or self._iteration % config.save_every == 0):
                self._save(state)
        return self._result()

    def _result(self) -> Hijacked:
        """Scores of the fixed samples at the networks as they are."""
        truth, images = self._truth.cpu(), self._reconstruct().cpu()
        mean_image = self._public.inputs().mean(0)
        spent = math.inf
        if self._defence is not None:
            spent = epsilon(
                [_event(self._config, self._defence, len(self._private))], self._config.delta
            )
        rng = self._bootstrap
        among = candidates(self._private.y[torch.from_numpy(self._scored)], rng=rng)
        return Hijacked(
            score=score("fsha", truth, images, mean_image, rng=rng, among=among),
            mean_image_mse=_mse(mean_image.expand_as(truth), truth),
            autoencoder_mse=float(
                (self._server.rehearse(self._truth) - self._truth).square().mean()
            ),
            curve=tuple(self._curve),
            iterations=self._iteration,
            seconds=self._seconds,
            cpu_seconds=self._cpu_seconds,
            epsilon=spent,
            noise_multiplier=self._defence.noise_multiplier if self._defence else 0.0,
            truth=truth,
            reconstructions=images,
        )

    def _save(self, path: Path) -> None:
        """Put everything that going on needs into one file."""
        tensors = {
            f"network.{name}.{key}": t
            for name, network in self._networks.items()
            for key, t in network.state_dict().items()
        }
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
        write_tensors(
            path, tensors, {"about": json.dumps(self._about), "record": json.dumps(record)}
        )

    def _load(self, path: Path) -> None:
        """Take everything up again."""
        tensors, notes = read_tensors(path)
        if notes.get("about") != json.dumps(self._about):
            raise BadInput(
                f"expected the state of this very attack at {path}, got that of other settings, "
                "seed or samples; delete it or name another file"
            )
        record = json.loads(notes["record"])
        for name, network in self._networks.items():
            network.load_state_dict(_under(tensors, f"network.{name}."))
        for name, optimiser in self._optimisers.items():
            slots: dict[int, dict[str, Tensor]] = {}
            for key, t in _under(tensors, f"optimiser.{name}.").items():
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
        share, config = self._config.rate_share(self._iteration), self._config
        rates = {
            "client": config.client_rate,
            "autoencoder": config.pilot_rate,
            "critic": config.critic_rate,
        }
        for name, optimiser in self._optimisers.items():
            optimiser.param_groups[0]["lr"] = share * rates[name]

    def _reconstruct(self) -> Tensor:
        return self._server.reconstruct(self._client.smash(self._scored))


def _mse(images: Tensor, truth: Tensor) -> float:
    return float((images - truth).square().mean())


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}


def _defence(config: FSHAConfig, samples: int) -> ClipAndNoise | None:
    """The least noise whose epsilon over all iterations is at most the one asked for."""
    if config.epsilon == math.inf:
        return None
    budget = Budget(config.epsilon, config.delta)
    budget.check(samples, 0)
    sigma = noise_for(
        budget, samples=samples, batch_size=config.batch_size, iterations=config.iterations
    )
    batch_size = float(min(config.batch_size, samples))
    return ClipAndNoise(clip=config.clip, noise_multiplier=sigma, batch_size=batch_size)


def _client_config(config: FSHAConfig, defence: ClipAndNoise | None) -> SplitConfig:
    return SplitConfig(
        width=config.width,
        batch_size=config.batch_size,
        learning_rate=config.client_rate,
        momentum=config.momentum,
        defence=defence,
    )


def _event(config: FSHAConfig, defence: ClipAndNoise, samples: int) -> SampledGaussian:
    rate = min(1.0, config.batch_size / samples)
    return SampledGaussian(rate, defence.noise_multiplier, config.iterations)


def _digest(*sets: Samples) -> str:
    digest = hashlib.sha256()
    for samples in sets:
        digest.update(f"{samples.x.dtype}{tuple(samples.x.shape)}".encode())
        digest.update(samples.x.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
