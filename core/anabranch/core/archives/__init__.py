"""Archives of the log: the cluster trims no record that one of them still needs.

`archive`: the log's entry for one.
`evolve`: the changes of archives by records.
"""

# Code outside of core may import these.
__all__ = [
    "archive",
    "evolve",
]
