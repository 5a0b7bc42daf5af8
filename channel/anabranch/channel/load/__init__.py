"""The load of segments: measured at Kafka, and told to all nodes."""
