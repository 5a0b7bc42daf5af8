"""One module per check of the audit; each judges the log by rules of its own, not the fold's."""
