"""A node's part in scalable topics: it controls those whose bundles it owns, and shows them all.

`operations`: people's requests about topics; `build` puts it together.
`controllers`, `subscriptions`: the work of the node that controls a topic.
`policies`: bounds of a topic, and rules for its own splits and merges.
`lists`, `kept_list`, `list_shares`, `catching_up`: lists of topics, for those who follow them.
`watches`: the followers of topics' layouts.
`transactions`: open transactions that keep sealed segments from being read.
`placement`: Kafka's brokers, which segments lie on.
`recurring`: looks that are repeated again and again.
`segment_looks`, `restoring`: others' changes to segments in Kafka, and the remedy.
`metrics`: a node's metrics of its topics.
"""
