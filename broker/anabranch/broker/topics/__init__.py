"""A node's part in scalable topics: it controls those whose bundles it owns, and shows them all.

`operations`: what people can ask of topics; `build` puts it together.
`controllers`, `subscriptions`: the work of the node that controls a topic.
`policies`: what a topic may be, and when it scales by itself.
`lists`, `watches`: who follows which topics there are, and their layouts.
`placement`, `kafka_drains`: Kafka's brokers, where segments lie.
`metrics`: what a node tells of its topics.
"""
