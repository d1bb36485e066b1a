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
    source: str
    address: str


LIST = "https://desfontain.es/blog/real-world-differential-privacy.html"
LISTED = "Apple, Differential Privacy Overview; as listed by D. Desfontaines"
DEPLOYMENTS = (
    Deployment(
        who="Apple",
        what="health types, emoji, lookup hints and typed words, from devices",
        unit="a user's day",
        epsilons=(2.0, 16.0),
        delta="0",
        source=LISTED,
        address=LIST,
    ),
    Deployment(
        who="Google",
        what="next-word models of a keyboard, by federated learning",
        unit="a user",
        epsilons=(0.994, 13.69),
        delta="1e-10",
        source="Google Research, Advances in private training for production on-device language "
        "models, 2024",
        address="https://research.google/blog/advances-in-private-training-for-production-on-device-"
        "language-models/",
    ),
    Deployment(
        who="US Census Bureau",
        what="redistricting data of 2020, persons",
        unit="a person",
        epsilons=(17.14, 17.14),
        delta="1e-10",
        source="US Census Bureau, production settings of the redistricting data, June 2021",
        address="https://www.census.gov/newsroom/press-releases/2021/2020-census-key-parameters.html",
    ),
    Deployment(
        who="Wikimedia Foundation",
        what="daily page views by country",
        unit="10 page views of a device in a day",
        epsilons=(1.0, 1.0),
        delta="1e-07",
        source="Wikimedia, Pageviews Differential Privacy, README (zCDP with rho 0.015)",
        address="https://analytics.wikimedia.org/published/datasets/country_project_page/00_README.html",
    ),
)
