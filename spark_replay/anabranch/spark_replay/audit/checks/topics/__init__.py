"""Checks of scalable topics, their segments, and what Kafka has of these."""
