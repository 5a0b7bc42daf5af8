"""The log: folded, loaded from a snapshot, and the way of a proposal to Kafka and back."""
