"""The fold: the rules of all nouns in one function, and the replicas that keep its result.

`evolve`: the function that makes a state from a log.
`replica`: a state with the offset that it stands for.
`digests`: a hash of it.
"""

# Code outside of core may import these.
__all__ = [
    "digests",
    "evolve",
    "replica",
]
