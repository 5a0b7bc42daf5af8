"""Subscriptions of the topics that a node controls: consumers, positions, and their records.

`consumers`: consumers' sessions with the controller, and why one is not served.
`groups`: a subscription's beginning in Kafka, and its end.
`changes`: subscriptions are made, changed, put somewhere else, and deleted.
`dead_letters`: a queue's topic for messages that it cannot process.
`positions`, `queue_positions`: questions to Kafka about all groups' progress.
`backlogs`: unread messages, and open transactions that keep them from being read.
`surveys`: the regular look at that, and the end of unused subscriptions.
`position_watch`: the guard of positions' place in Kafka.
"""
