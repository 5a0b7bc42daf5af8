"""Subscriptions of scalable topics (PIP-468): their registered consumers, and the buckets of each.

`machine`: its moves, the states that they start from, and their guards.
`evolve`: the changes of subscriptions by records.
`propose`: proposals for its next version.
`admission`: the admission of consumers.
`assignor`: the target of buckets, as a function of the layout and the consumers.
`target_assignment`: that target, with regard to the absent consumers.
`handover`: the time at which a bucket changes hands.
`coordinator`: the present consumers, and the buckets that each holds now.
`instances`: the processes that serve under names.
`marks`: the owner of a position that Kafka has.
`known_positions`: the position that counts, and foreign changes of one.
`draining`: the segments that it has finished.
`unserved`: a watchdog for buckets that no consumer serves.
`timing`: the time limits of all that.
"""

# Code outside of core may import these.
__all__ = [
    "admission",
    "coordinator",
    "draining",
    "instances",
    "known_positions",
    "marks",
    "propose",
    "timing",
]
