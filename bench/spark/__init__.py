"""Audit and back-test: each module runs in a process of its own, started by `processes`."""
