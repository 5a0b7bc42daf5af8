"""Snapshots of the folded state in their compacted topic: written, read back, and proved whole."""
