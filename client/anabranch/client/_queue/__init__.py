"""A queue consumer: single messages by a Kafka share group, dead letters included."""
