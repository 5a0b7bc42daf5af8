"""The domain: pure functions and values; no I/O, no clock, no threads."""
