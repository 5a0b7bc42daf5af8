"""On which of Kafka's brokers the partitions of new segments lie.

`room`: what is known of Kafka's brokers, and what is wanted.
`placer`: which brokers each partition gets.
`drain`: which brokers get none, and what is to leave them.
"""

# What code outside of core may import.
__all__ = ["drain", "placer", "room"]
