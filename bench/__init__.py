"""Measurements, each as a ratio to a limit that is measured in the same run: `make bench`.

`registry` has all figures; what one is, where it is measured and what is printed, `figure`, `place`
and `report`. Each package is named for what it measures, but the last one, which helps them.

`log`: folding the log, starting from a snapshot, a proposal's way.
`nodes`: whole nodes, a container of one, a proxy.
`topics`: scalable topics in a node: split and merged, read, listed, scaled.
`clients`: producing and consuming with the SDK, beside the bare client of Kafka.
`balance`: the load balancer, and what it is told.
`security`: what it takes to know who asks and what they may.
`spark`: the audit.
`http`: what asks nodes over HTTP, and the limit of it.
"""
