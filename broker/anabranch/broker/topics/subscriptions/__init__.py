"""Subscriptions of the topics that a node controls: consumers, positions, and their records.

`consumers`: consumers' sessions with the controller.
`groups`: a subscription's beginning in Kafka, and its end.
`changes`: changes of a subscription that is there.
`positions`, `queue_positions`: questions to Kafka about all groups' progress.
`backlogs`: unread messages, and open transactions that keep them from being read.
`surveys`: the regular look at that.
`position_watch`: the guard of positions' place in Kafka.
`refusals`: the reasons for which a consumer is not served, in words.
`usage`: possible consumers, and the end of unused subscriptions.
"""
