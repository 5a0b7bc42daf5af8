"""A node: the core wired to channel, projections, REST and the command line."""
