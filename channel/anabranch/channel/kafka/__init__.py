"""Kafka itself: how clients reach it and wait for it, and the cluster's own topics."""
