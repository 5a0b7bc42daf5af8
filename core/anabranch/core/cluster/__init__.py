"""The cluster: the settings that all of its nodes share.

`settings`: the log's entry for them.
`evolve`: the record that brings them into the log.
"""

# Code outside of core may import these.
__all__ = [
    "settings",
]
