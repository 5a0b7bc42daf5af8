"""All that nodes have in Kafka: the log and its schemas, snapshots, heartbeats, loads, segments."""
