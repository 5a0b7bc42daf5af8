"""Whole nodes and a proxy, each a process or a container of its own."""
