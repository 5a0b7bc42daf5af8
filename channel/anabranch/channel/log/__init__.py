"""The log in Kafka: its entries, how they are appended and read, and where it ends."""
