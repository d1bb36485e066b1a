"""A search by candidates that groups of sites train side by side, as DecNAS does.

| file | what it holds |
|---|---|
| `groups` | sites partitioned, balanced in samples and alike in labels |
| `schedule` | phases and round numbers, and how much of a site they ask at most |
| `selection` | fused accuracies, the degradation ratio, and who is dropped |
| `progress` | where the server's search stands, with its JSON |
| `search` | the server's steps |
| `site` | what a site keeps between rounds, and what it counts |
| `turn` | a site's part of a round |
"""
