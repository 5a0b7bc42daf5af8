"""A node: the core wired to channel, projections, both ports and the command line; the proxy."""
