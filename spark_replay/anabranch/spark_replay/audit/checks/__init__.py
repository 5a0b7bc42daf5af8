"""Checks of the audit. Each judges the log by rules of its own, not the fold's."""
