"""A real single-node Kafka as a child process: `embedded.EmbeddedKafka` runs it."""
