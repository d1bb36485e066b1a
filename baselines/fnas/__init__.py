"""The parts of DP-FNAS (`baselines.dp_fnas`).

| file | what it holds |
|---|---|
| `schedule` | the settings, and what they ask of each round |
| `networks` | both networks, as they begin and as they cross the wire |
| `gradients` | what a site sends in a round |
| `batches` | the gradient of one batch, private by a plan or plain |
| `prepaid` | charges for several steps at once, as a round is one step |
"""
