"""The mutants of `benchmarks.mutants`: where, what text, and what in its place.

Two cannot be seen from outside, and say how far the audit reaches: noise of a seed of 32 bits, and
a branch that only one data set takes.
"""

from dataclasses import dataclass

KINDS = "panas.privacy.release.kinds"
MOMENTS, CLASS_SUMS = f"{KINDS}.moments", f"{KINDS}.class_sums"
RELEASE, NOISE = "panas.privacy.release", "panas.privacy.noise"
GRADIENT = "panas.privacy.gradients.private:PrivateGradient"
COUNTING, SECURE = "panas.privacy.accounting", "dprbft.secure_sum"


@dataclass(frozen=True)
class Mutant:
    """A function with one piece of its text replaced."""

    area: str
    name: str
    target: str  # module:function, or module:Class.method
    old: str
    new: str


def _in(area: str, target: str, *mutants: tuple[str, str, str]) -> tuple[Mutant, ...]:
    return tuple(Mutant(area, name, target, old, new) for name, old, new in mutants)


B = "B = sums + scale * noise.normal(classes, d)"
RELEASES = (
    *_in(
        "moments",
        f"{MOMENTS}:run",
        (".95 of the noise", B, B.replace("scale", "0.95 * scale")),
        ("A's noise not spread", "scale * _spread(d) * noise", "scale * noise"),
        ("one entry bare", "    return {", "    A[0] = upper[0]\n    return {"),
        ("noise of torch", B, B.replace("noise.normal", "torch.randn")),
        ("none for one row", B, B.replace("scale", "(scale if len(rows.y) > 1 else 0.0)")),
        ("none for one data set", B, B.replace("scale", "scale * (int(rows.z.sum()) != 7777)")),
        ("half for many rows", B, B.replace("scale", "(scale / (1 + (len(rows.y) > 500)))")),
        (
            "none along a sample",
            B,
            "v = torch.nn.functional.normalize(rows.z[:1].double())\n"
            "    n = noise.normal(classes, d)\n"
            "    B = sums + scale * (n - n @ v.T @ v)",
        ),
        (
            "noise hashes the data",
            B,
            "seed = int(abs(float(rows.z.double().sum())) * 1e6) % 2**32\n"
            "    g = torch.Generator().manual_seed(seed)\n"
            "    noise.normal(classes, d)\n"
            "    B = sums + scale * torch.randn(classes, d, generator=g, dtype=torch.float64)",
        ),
    ),
    *_in(
        "moments",
        f"{MOMENTS}:_sums",
        ("no clip", "u = grid_rows(rows.z)", "u = rows.z.double()"),
        ("a sample weighted 3", "weighted = u", "weights[:1] *= 3\n    weighted = u"),
        ("counts at full size", "return upper,", "counts = counts / 0.25\n    return upper,"),
    ),
    *_in(
        "moments", f"{MOMENTS}:_spread", ("less noise off the diagonal", "sqrt(0.5)", "sqrt(0.2)")
    ),
    *_in(
        "class sums",
        f"{CLASS_SUMS}:run",
        ("counts bare", " + scale * noise.normal(classes)\n", "\n"),
        ("counts with the noise of sums", "noise.normal(classes)\n", "(S - sums)[:, 0] / scale\n"),
        ("no clip", "u = grid_rows(rows.z)", "u = rows.z.double()"),
        (
            "none for absent classes",
            "scale * noise.normal(classes, u.shape[1])",
            "(sums != 0).double() * scale * noise.normal(classes, u.shape[1])",
        ),
        (
            "number of rows",
            '"counts": counts.float()',
            '"counts": counts.float(), "n": weights.sum()',
        ),
    ),
)
GATE = (
    *_in(
        "release gate",
        f"{RELEASE}.gate:release",
        ("reads before the charge", "    charge = request", "    rows()\n    charge = request"),
        (".9 of the noise", "scale = noise_scale(", "scale = 0.9 * noise_scale("),
    ),
    *_in(
        "release gate",
        f"{RELEASE}.gate:_check_event",
        ("any event", "    event, wanted", "    return\n    event, wanted"),
    ),
    *_in(
        "release gate",
        f"{RELEASE}.kind:noise_scale",
        ("no sensitivity", "(kind.SENSITIVITY or 0.0)", "1.0"),
    ),
    *_in(
        "release gate",
        f"{RELEASE}.rows:unit_weights",
        ("groups at full weight", "min(1.0, most / moved)", "1.0"),
    ),
    *_in(
        "release gate",
        f"{RELEASE}.rows:grid_rows",
        ("clip at 1.1", "(SHORTER / row", "(1.1 * SHORTER / row"),
    ),
    *_in(
        "release gate",
        f"{RELEASE}.rows:checked_rows",
        (
            "refuses NaN",
            "    return Rows(",
            "    if not bool(finite.all()):\n        raise BadInput('NaN')\n    return Rows(",
        ),
    ),
)
CLIPPING = (
    *_in(
        "clipping",
        f"{GRADIENT}._clipped_sum",
        ("twice the clip", "factor = (clip / norms", "factor = (2 * clip / norms"),
        ("none", ".clamp(max=1.0)", ".clamp(min=1.0)"),
    ),
    *_in(
        "clipping",
        "panas.privacy.gradients.private:_joint_norms",
        ("one layer's norm", "grads[1:]", "grads[:0]"),
    ),
    *_in(
        "clipping",
        f"{GRADIENT}._clipped_means",
        ("groups unclipped", "sizes[first:last, None], clip)", "sizes[first:last, None], 9.0)"),
    ),
    *_in(
        "clipping",
        f"{GRADIENT}.step",
        ("divisor is the batch", "/ mechanism.batch_size", "/ max(1, len(y))"),
        ("half the noise", "draw = scale", "draw = scale / 2"),
        ("none for an empty batch", "draw = scale", "draw = (scale if len(y) else 0.0)"),
        ("one weight bare", "    private =", "    draw[-1] = 0.0\n    private ="),
        ("noise of torch", "noise.normal(len(total))", "torch.randn(len(total))"),
    ),
    *_in(
        "clipping",
        "panas.privacy.plan:Plan.clip_and_noise",
        ("less than charged", "=self.noise_multiplier", "=0.9 * self.noise_multiplier"),
    ),
)
SAMPLING = (
    *_in(
        "sampling",
        f"{NOISE}:poisson_batch",
        ("rate 1.2 q", "< rate", "< 1.2 * rate"),
        (
            "batches of one size",
            "torch.nonzero(noise.uniform(samples) < rate).flatten()",
            "noise.uniform(samples).argsort()[: round(rate * samples)]",
        ),
        (
            "seeded",
            "noise.uniform(samples)",
            "torch.from_numpy(np.random.default_rng(0).random(samples))",
        ),
    ),
    *_in(
        "sampling",
        f"{NOISE}:poisson_batches",
        (
            "one batch again",
            "return (poisson_batch(samples, rate, noise) for",
            "batch = poisson_batch(samples, rate, noise)\n    return (batch for",
        ),
        (
            "shuffled once",
            "return (poisson_batch(samples, rate, noise) for _ in range(steps))",
            "order, size = noise.uniform(samples).argsort(), max(1, round(rate * samples))\n"
            "    return (order[k * size % max(1, samples) :][:size] for k in range(steps))",
        ),
    ),
    *_in(
        "sampling",
        "panas.privacy.plan:Plan.batches",
        (
            "rows of a group apart",
            "units = number_units(groups)",
            "units = (groups * 0 + 1).cumsum(0) - 1",
        ),
    ),
    *_in(
        "sampling",
        "panas.privacy.plan:Plan.training_event",
        ("half the steps charged", "self.steps)", "max(1, self.steps // 2))"),
    ),
)
NOISES = (
    *_in(
        "noise",
        f"{NOISE}:SystemNoise.normal",
        (".95 of the size", "-2.0 *", "-1.8 *"),
        ("each number twice", "torch.sin(angle)", "torch.cos(angle)"),
        (
            "uniform law",
            "    return pair",
            "    return (12**0.5 * (self.uniform(size) - 0.5)).reshape(shape)\n    return pair",
        ),
        ("tail cut at 3", "pair[:size]", "pair[:size].clamp(-3, 3)"),
        (
            "seed of 32 bits",
            "    return pair",
            "    g = torch.Generator().manual_seed(int.from_bytes(os.urandom(4), 'big'))\n"
            "    return torch.randn(shape, generator=g, dtype=torch.float64)\n    return pair",
        ),
        (
            "seed of 16 bits",
            "    return pair",
            "    g = torch.Generator().manual_seed(int.from_bytes(os.urandom(2), 'big'))\n"
            "    return torch.randn(shape, generator=g, dtype=torch.float64)\n    return pair",
        ),
        (
            "kept by shape",
            "return pair[:size].reshape(shape)",
            "kept = globals().setdefault('_kept', {})\n"
            "    return kept.setdefault(shape, pair[:size].reshape(shape)).clone()",
        ),
    ),
    *_in(
        "noise",
        f"{NOISE}:SystemNoise.uniform",
        (
            "16 bits",
            "(words >> np.uint64(11)).astype(np.float64) * 2.0**-53",
            "(words >> np.uint64(48)).astype(np.float64) * 2.0**-16",
        ),
        (
            "seed of 16 bits in NumPy",
            "    words =",
            "    seed = int.from_bytes(os.urandom(2), 'big')\n"
            "    return torch.from_numpy(np.random.default_rng(seed).random(size))\n    words =",
        ),
        (
            "time as seed",
            "    words =",
            "    import time\n"
            "    rng = np.random.default_rng(int(time.time()))\n"
            "    return torch.from_numpy(rng.random(size))\n    words =",
        ),
    ),
    *_in(
        "noise",
        "panas.privacy.discrete_gaussian:discrete_gaussian",
        ("a discrete Laplace", "y[_near(y, exact, scale, entropy)]", "y"),
    ),
)
PRICES = (
    *_in(
        "accounting",
        f"{COUNTING}.epsilon:_tightest",
        (".95 of epsilon", "return gaussian_epsilon(", "return 0.95 * gaussian_epsilon("),
    ),
    *_in(
        "accounting",
        f"{COUNTING}.events:merge",
        (
            "the worst Gaussian alone",
            "            precision += m**-2",
            "            precision = max(precision, m**-2)",
        ),
        ("half the steps", "m] += event.steps", "m] += event.steps // 2"),
        ("replace as add", "2.0 if relation == REPLACE else 1.0", "1.0"),
        ("a group as one", "precision * group**2", "precision"),
        ("unprotected left out", "            return None", "            continue"),
    ),
    *_in(
        "accounting",
        f"{COUNTING}.pld:_sampled",
        ("rate .9 q", "_gaussian(sigma, q, interval)", "_gaussian(sigma, 0.9 * q, interval)"),
    ),
    *_in(
        "accounting",
        f"{COUNTING}.pld:_gaussian",
        ("one direction", "Distribution(removed, added)", "Distribution(added, added)"),
    ),
    *_in(
        "accounting",
        f"{COUNTING}.rdp:_curve",
        ("half of Renyi's", "merged.precision / 2", "merged.precision / 4"),
    ),
    *_in(
        "accounting",
        "panas.privacy.calibration:fits",
        ("a tenth above the budget", "<= budget.epsilon", "<= 1.1 * budget.epsilon"),
    ),
    *_in(
        "accounting",
        "panas.privacy.ledger.ledger:_check_total",
        ("never refuses", "if not total <=", "if False and not total <="),
    ),
)
HISTOGRAMS = (
    *_in(
        "histogram",
        f"{RELEASE}.histogram:label_histogram",
        ("no sensitivity", "sensitivity * event.noise_multiplier *", "event.noise_multiplier *"),
        ("one-sided noise", "noise.normal(classes)", "noise.normal(classes).abs()"),
        (
            "none for absent classes",
            "noise.normal(classes)",
            "noise.normal(classes) * (counts > 0)",
        ),
        (
            "reads before the charge",
            "    with ledger.charge(charge):\n        y, groups = labels()",
            "    y, groups = labels()\n    with ledger.charge(charge):",
        ),
    ),
    *_in(
        "histogram",
        f"{RELEASE}.histogram:unit_counts",
        ("groups count 3", ", 1.0, length)", ", 3.0, length)"),
    ),
)
SUMS = (
    *_in(
        "secure sum",
        f"{SECURE}.masks:self_mask",
        (
            "no own mask",
            "    return key_stream(",
            "    return np.zeros(size, np.uint64)\n    return key_stream(",
        ),
    ),
    *_in(
        "secure sum",
        f"{SECURE}.masks:pair_mask",
        (
            "no pair masks",
            "    return stream",
            "    return np.zeros(size, np.uint64)\n    return stream",
        ),
    ),
    *_in(
        "secure sum",
        f"{SECURE}.masks:key_stream",
        ("one stream for all", "ChaCha20(key,", "ChaCha20(bytes(32),"),
        ("32 bits of 64", ".astype(np.uint64)", ".astype(np.uint64) & np.uint64(0xFFFFFFFF)"),
    ),
    *_in(
        "secure sum",
        f"{SECURE}.shares:split",
        ("each share is the secret", "os.urandom(SEED_BYTES)", "bytes(SEED_BYTES)"),
    ),
    *_in(
        "secure sum",
        f"{RELEASE}.gate:add_to_sum",
        ("half a share of noise", "sampler(noise.sigma,", "sampler(noise.sigma // 2,"),
    ),
    *_in(
        "secure sum",
        f"{RELEASE}.gate:SumNoise.of",
        ("shares of n sites", "sites - missing\n", "sites\n"),
    ),
    *_in(
        "secure sum",
        f"{SECURE}.party:Party._settle",
        ("opens two lists", "if self._survivors and", "if False and"),
    ),
    *_in(
        "secure sum",
        f"{SECURE}.party:Party.mask",
        ("masks two vectors", "if self._masked and", "if False and"),
    ),
)
MUTANTS = (*RELEASES, *GATE, *CLIPPING, *SAMPLING, *NOISES, *PRICES, *HISTOGRAMS, *SUMS)
