"""The HTTP interface of a node: look-ups, administration, health and metrics.

Paths, verbs, bodies and status codes are those of Pulsar's admin REST and HTTP look-up. The
description of a route says so if it is ours alone. `app.create_app` makes the application, which
`server.HttpServer` runs in the node's event loop.
"""
