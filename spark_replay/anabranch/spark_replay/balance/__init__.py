"""The back-test of the load balancer: recorded load, replayed under several settings."""
