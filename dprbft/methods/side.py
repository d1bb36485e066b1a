"""What a server knows besides the messages of its sites."""

from dataclasses import dataclass

from dprbft.config.schema import RunConfig
from panas.data.facts import Facts
from panas.data.samples import Samples
from panas.features.map import FeatureMap


@dataclass(frozen=True)
class Side:
    """What a server knows besides messages; all of it is public."""

    config: RunConfig
    facts: Facts
    public: Samples
    feature_map: FeatureMap | None = None  # that all sites share, where the method has one
    unlabelled: Samples | None = None  # public ones without labels
