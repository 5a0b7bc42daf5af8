"""Commands about one node: run it, check what it needs, list its settings."""
