"""Kafka itself: how clients reach it and wait for it, its ACLs, and the cluster's own topics."""
