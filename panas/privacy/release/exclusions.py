"""What no promise of a ledger covers: on every card, and in docs/privacy.md in the same words."""

EXCLUSIONS = (
    "that a client takes part, and in which rounds; how long it computes",
    "whether its data fit the federation (shape, classes): a refusal can tell",
    "its number of training samples (of groups, where they are the unit) where its owner declares "
    "it (samples in site.toml), or where a plan is made for the exact number, in Python; else runs "
    "plan with a noised one",
    "more than one sample or group of a person: for k of them the protection is weaker "
    "(panas ledger RUN --group k)",
    "samples that were declared public: nothing protects them",
    "class names, columns, shape and scale of the data, which are the federation's public facts",
    "what is chosen on its validation samples (round, head, blend, weights): it stays with the "
    "client",
    "accuracies in the run's own files and reports: a simulator's view of validation and test "
    "samples, and (accuracy.pooled) of the training samples of all sites",
    "settings of a run that were chosen from the results of an earlier run on the same data: the "
    "total of several runs assumes that all settings were fixed beforehand",
    "a custom block that carries information from one sample to the next, outside its buffers",
    "whoever can look into the client's own machine",
    "attacks on the rounding of floating-point numbers (Mironov 2012): noise is drawn and added in "
    "64-bit floats, then rounded",
)
"""Each a phrase that ends "is not covered"."""
