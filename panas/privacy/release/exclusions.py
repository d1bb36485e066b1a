"""What no promise of a ledger covers; docs/explanation/privacy.md has the same words."""

EXCLUSIONS = (
    "that a site takes part, and in which rounds; how long it computes",
    "whether its data fit the federation (shape, classes): a refusal can tell",
    "its number of training samples or groups, if its owner declares it (samples in site.toml) or "
    "a plan in Python uses it; other runs plan with a noised number",
    "more than one sample or group of a person: for k of them the protection is weaker "
    "(panas ledger RUN --group k)",
    "samples that were declared public: nothing protects them",
    "class names, columns, shape and scale of the data, which are the federation's public facts",
    "what is chosen on its validation samples (round, head, blend, weights, label "
    "frequencies): it stays at the site",
    "accuracies in the run's own files and reports: a simulator's view of validation and test "
    "samples, and (accuracy.pooled, accuracy.pooled_forest) of the training samples of all sites",
    "settings that were chosen from the results of an earlier run on the same data: the total of "
    "several runs assumes that all settings were fixed before the first",
    "a custom block that carries information from one sample to the next, outside its buffers",
    "people with access to the site's own machine",
    "attacks on the rounding of floating-point numbers (Mironov 2012): noise is drawn and added in "
    "64-bit floats, then rounded",
)
"""Each a phrase that ends "is not covered"."""
