"""A real Kafka as child processes: `embedded` is one broker, `brokers` are several."""
