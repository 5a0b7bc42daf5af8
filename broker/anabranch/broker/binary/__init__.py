"""The node's side of the binary protocol: its part for each command (docs/wire.md)."""
