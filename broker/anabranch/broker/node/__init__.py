"""One node: its start, its life and its end.

`startup`: what it needs of Kafka before it starts.
`view_catch_up`: its view, from nothing to the log's end.
`node`: the node itself, which brings all its parts together.
`feeds`: threads that wait for Kafka.
`balancing`, `metrics`: its part in balancing, and its figures.
`process`: the process that it runs in: memory, file descriptors, the collector.
"""
