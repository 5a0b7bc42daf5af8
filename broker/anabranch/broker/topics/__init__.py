"""A node's part in scalable topics: it controls those whose bundles it owns, and shows them all.

`operations`: people's requests about topics, and all that serves them.
`build`: the parts that ask Kafka, and the controllers, from a node's settings.
`controllers`, `subscriptions`: the work of the node that controls a topic.
`adopting`: Kafka topics become scalable topics where they lie.
`policies`: bounds of a topic, and rules for its own splits and merges.
`lists`: lists of topics, for those who follow them.
`watches`: the followers of topics' layouts.
`kafka_threads`: threads that ask Kafka.
`recurring`: looks that are repeated again and again.
`segment_looks`, `restoring`: others' changes to segments in Kafka, and the remedy.
`metrics`: a node's metrics of its topics.
"""
