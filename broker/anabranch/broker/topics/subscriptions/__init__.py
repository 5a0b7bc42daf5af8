"""Subscriptions of the topics that a node controls: who consumes, how far, and what is kept of it.

`consumers`: consumers' sessions with the controller.
`groups`: where a subscription begins in Kafka, and how it ends.
`changes`: what is changed of one that is there.
`positions`, `queue_positions`: what Kafka is asked of how far all have read.
`open_transactions`: what keeps sealed segments from being read.
`surveys`: the regular look at that.
`standing`, `position_watch`: which positions count, and that nobody else's take their place.
`usage`: who may be consuming, and what becomes of what nobody uses.
"""
