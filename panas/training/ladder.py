"""The accuracy after each step of a run."""

from dataclasses import dataclass

from panas.training.metrics import Figure


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Test accuracies of one site, or their means over sites, a step above the other."""

    majority: Figure  # the most frequent class
    public: Figure  # the network as public samples leave it
    alone: Figure  # trained on the site's own samples, before others had a say
    joined: Figure  # what the site keeps
