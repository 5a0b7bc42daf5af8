"""The binary protocol between clients and nodes: messages, frames, connections (docs/wire.md).

Here is what both sides share, and the client's side. The node's is in `server`, what lists of
topics may take of memory in `memory`, and the part of Kafka's own protocol that librdkafka has no
call for in `kafka`.
"""
