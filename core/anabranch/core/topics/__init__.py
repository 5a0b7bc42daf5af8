"""Scalable topics (PIP-468): their segments, and how they split and merge.

`topic`: what the log keeps of one.
`segment`: one of its segments.
`layout`: the DAG of its segments.
`machine`: which moves it makes, from which states, under which guards.
`guards`: the conditions of its moves.
`evolve`: how records change topics.
`propose`: proposals for its next version.
`controller`: what its controller does, and when.
`tasks`: what is to be done in Kafka between two records.
`findings`: what somebody else has made of a segment's Kafka topic.
`retention`: what is kept, and for how long.
`kafka_names`: Kafka's names for what belongs to it.
`entries`: the hashes that an entry holds.
"""

# What code outside of core may import.
__all__ = [
    "controller",
    "entries",
    "findings",
    "guards",
    "kafka_names",
    "layout",
    "propose",
    "retention",
    "segment",
    "tasks",
    "topic",
]
