"""Commands that run Spark: archive, audit and back-test."""
