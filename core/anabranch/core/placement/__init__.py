"""The choice of Kafka brokers for the partitions of new segments.

`room`: the known facts of Kafka's brokers, and the load to place.
`placer`: the brokers of each partition.
`drain`: the brokers that get none, and the segments that must leave them.
"""

# Code outside of core may import these.
__all__ = ["drain", "placer", "room"]
