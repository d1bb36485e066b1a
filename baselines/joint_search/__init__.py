"""What FEATHERS is made of, beside its method file and the bandit.

| file | what it holds |
|---|---|
| `settings` | its options, and what follows from them: stages, sets of settings, networks |
| `site_rounds` | a site's round: what it keeps, charges, trains and measures |
| `alternating` | steps of weights and architecture in turn, with DP or without |
| `rewards` | the change of a site's loss, clipped by sample and noised |
"""
