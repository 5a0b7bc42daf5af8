"""The log in Kafka: its entries, appends and reads of them, and its end."""
