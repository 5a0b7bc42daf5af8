"""Settings that the whole cluster overrides while it runs.

`override`: the log's entry for one, and its possible forms.
`machine`: the moves of overrides, and their guards.
`evolve`: the changes of overrides by records.
"""

# Code outside of core may import these.
__all__ = [
    "override",
]
