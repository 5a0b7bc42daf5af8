"""Operators' policies of placement: isolation policies, failure domains, Kafka brokers that are
drained.

`policy`: the log's entry for one, and its possible forms.
`patterns`: the names that a policy's expressions match.
`machine`: the moves of policies, and their guards.
`evolve`: the changes of policies by records.
"""

# Code outside of core may import these.
__all__ = [
    "patterns",
    "policy",
]
