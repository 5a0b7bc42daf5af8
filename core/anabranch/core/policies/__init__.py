"""Operators' policies of placement: isolation policies, failure domains, Kafka brokers that are
drained.

`patterns`: the names that a policy's expressions match.
`machine`: the moves of policies, and their guards.
`evolve`: the changes of policies by records.
"""

# Code outside of core may import these.
__all__ = [
    "patterns",
]
