"""Archive and audit: the log replayed by Spark."""
