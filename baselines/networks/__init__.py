"""Networks of the literature: plain modules from (n, c, h, w) to logits (n, classes).

They are built of layers that the privacy engine knows (`panas.privacy.gradients`), so that their
per-sample gradients cost little more than plain ones. Under DP they have group norms.
"""
