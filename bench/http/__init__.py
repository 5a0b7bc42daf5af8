"""What asks nodes over HTTP, one connection or many, and the limit of it: a bare server."""
