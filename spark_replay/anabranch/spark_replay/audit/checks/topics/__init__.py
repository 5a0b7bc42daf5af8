"""Checks of scalable topics, of their segments, and of Kafka's data of these."""
