"""Segments in Kafka: made, sealed and deleted, and how far their subscriptions have read."""
