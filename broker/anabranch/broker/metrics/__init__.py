"""A node's counts and measurements, for Prometheus."""
