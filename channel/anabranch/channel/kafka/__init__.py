"""Kafka itself: clients' ways to reach it and wait for it, its ACLs, and the cluster's own
topics.
"""
