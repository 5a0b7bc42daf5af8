"""An existing Kafka topic that becomes the first segment of a scalable topic.

`adoptable`: the Kafka topics that a namespace may adopt.
`verdict`: the partitioner by which a topic was written.
`survey`: a topic as it was found.
`refusals`: reasons not to adopt it.
"""

# Code outside of core may import these.
__all__ = [
    "adoptable",
    "refusals",
    "survey",
    "verdict",
]
