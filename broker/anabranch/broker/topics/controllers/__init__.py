"""The controllers of the topics in a node's bundles, and the way to them from any node.

`service`: the controllers, and what they ask for.
`schedule`: which topics have their turn when.
`worker`: the threads in which their tasks in Kafka are done.
`keeper`: what makes, seals, looks at and deletes segments.
`access`: where a topic is controlled, and proposals by whoever controls it.
`elsewhere`: what another node is asked to do, which alone can.
"""
