"""Plans of DP-SGD."""

from panas.privacy.plan import Plan


def plan_of(
    samples: int, batch_size: int, clip: float = 1.0, sigma: float = 1.0, **more: int
) -> Plan:
    """One round of an epoch, unless more is said."""
    facts = {"epochs": 1, "rounds": 1} | more
    return Plan(samples=samples, batch_size=batch_size, clip=clip, noise_multiplier=sigma, **facts)
