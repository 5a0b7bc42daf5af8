"""A node: the core wired to channel, projections and both ports."""
