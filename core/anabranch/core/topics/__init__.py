"""Scalable topics (PIP-468): their segments, and how they split and merge.

`machine`: its moves, the states that they start from, and their guards.
`guards`: the conditions of its moves.
`evolve`: the changes of topics by records.
`propose`: proposals for its next version.
`controller`: the actions of its controller, and their times.
`tasks`: the work in Kafka between two records.
`findings`: foreign changes of a segment's Kafka topic.
`retention`: the things to keep, and for how long.
`kafka_names`: Kafka's names for everything that belongs to it.
`entries`: the hashes that an entry holds.
"""

# Code outside of core may import these.
__all__ = [
    "controller",
    "entries",
    "findings",
    "kafka_names",
    "propose",
    "retention",
    "tasks",
]
