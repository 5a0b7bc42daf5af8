"""The binary protocol between clients and nodes: messages, frames, connections (docs/wire.md).

This package has the parts of both sides, and the client's side. The node's side is in `server`, the
memory for lists of topics in `memory`. `kafka` has the part of Kafka's own protocol that librdkafka
has no call for.
"""
