"""Published epsilons of differential privacy in use, each with its source.

Figures are those of the source; nothing here is converted. They differ in unit, in trust and in
what is released, so that none ranks another.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One release, or one family of releases."""

    who: str
    what: str
    unit: str  # whose privacy it bounds
    epsilons: tuple[float, float]  # lowest and highest of the family; equal for one
    delta: str  # as published; "0" for pure differential privacy
    source: str  # document, author and year
    address: str


DEPLOYMENTS = (
    Deployment(
        who="Apple",
        what="emoji, new words, deep links and lookup hints of macOS 10.12, from devices",
        unit="a user's day",
        epsilons=(16.0, 16.0),
        delta="0",
        source="Tang, Korolova, Bai, Wang and Wang, Privacy loss in Apple's implementation of "
        "differential privacy on macOS 10.12, 2017",
        address="https://arxiv.org/abs/1709.02753",
    ),
    Deployment(
        who="Google",
        what="next-word models of a keyboard, by federated learning",
        unit="a user",
        epsilons=(0.994, 13.69),
        delta="1e-10",
        source="Xu and Zhang, Advances in private training for production on-device language "
        "models, Google Research, 2024",
        address="https://research.google/blog/advances-in-private-training-for-production-on-device-"
        "language-models/",
    ),
    Deployment(
        who="US Census Bureau",
        what="redistricting data of the 2020 census, persons",
        unit="a person",
        epsilons=(17.14, 17.14),
        delta="1e-10",
        source="US Census Bureau, Census Bureau sets key parameters to protect privacy in 2020 "
        "census results, press release, June 2021",
        address="https://www.census.gov/newsroom/press-releases/2021/2020-census-key-parameters.html",
    ),
    Deployment(
        who="Wikimedia Foundation",
        what="daily page views by country",
        unit="10 page views of a device in a day",
        epsilons=(1.0, 1.0),
        delta="1e-07",
        source="Adeleye and others, Publishing Wikipedia usage data with strong privacy "
        "guarantees, 2023 (zCDP with rho 0.015)",
        address="https://arxiv.org/abs/2308.16298",
    ),
)
