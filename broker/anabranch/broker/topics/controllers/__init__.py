"""The controllers of the topics in a node's bundles, and the way to them from any node.

`service`: the controllers, and the effects that they ask for.
`schedule`: the topics that have their turn in a tick.
`worker`: the threads in which their tasks in Kafka are done.
`keeper`: makes, seals, looks at and deletes segments.
`access`: a topic's controller, and that controller's proposals.
`elsewhere`: requests to another node, which alone can do them.
"""
