"""A real Kafka of one broker as a child process, `embedded`, for `dev`, the demo and tests."""
