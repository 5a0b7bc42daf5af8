"""The controllers of the topics in a node's bundles, and the way to them from any node.

`service`: the controllers, and the effects that they ask for.
`decisions`: the last ones to split and merge.
`schedule`: the topics that have their turn in a tick.
`timelines`: the duration of each step of a layout change.
`worker`: the threads in which their tasks in Kafka are done.
`access`: a topic's controller, and that controller's proposals.
"""
