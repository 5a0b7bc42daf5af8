"""A relay for clients that cannot reach nodes: the binary protocol and HTTP, client by client."""
