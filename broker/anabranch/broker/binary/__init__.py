"""The node's side of the binary protocol: what it does with each command (docs/wire.md)."""
