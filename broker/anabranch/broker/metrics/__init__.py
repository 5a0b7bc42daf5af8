"""What a node counts and measures, for Prometheus."""
