"""Commands about one node: run it, check its needs, list its settings."""
