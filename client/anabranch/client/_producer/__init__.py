"""A producer: from what the application sends to what Kafka stores."""
