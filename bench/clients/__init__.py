"""Producing and consuming with the SDK, beside the bare client of Kafka under the same load."""
