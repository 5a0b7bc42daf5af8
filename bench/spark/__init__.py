"""The audit: it runs in a process of its own, started by `processes`."""
