"""The binary protocol between clients and nodes: messages, frames, connections (docs/wire.md)."""
