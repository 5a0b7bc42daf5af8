"""A node's part in scalable topics: it controls those whose bundles it owns, and shows them all.

`operations`: what people can ask of topics; `build` puts it together.
`controllers`, `subscriptions`: the work of the node that controls a topic.
`policies`: what a topic may be, and when it scales by itself.
`lists`, `kept_list`, `list_shares`, `catching_up`: which topics there are, for who follows them.
`watches`: who follows their layouts.
`transactions`: what keeps sealed segments from being read.
`placement`, `kafka_drains`: Kafka's brokers, where segments lie.
`recurring`: what is looked at again and again.
`segment_looks`, `restoring`: what somebody else has made of segments in Kafka, and what helps.
`metrics`: what a node tells of its topics.
"""
