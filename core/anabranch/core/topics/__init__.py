"""Scalable topics (PIP-468): their segments, and how they split and merge.

`guards`: what must hold before each of its moves.
`machine`: the table of its moves, and the changes by them.
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
