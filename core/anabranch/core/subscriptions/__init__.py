"""Subscriptions of scalable topics (PIP-468): who is registered, and who reads what.

`subscription`: what the log keeps of one.
`machine`: which moves it makes, from which states, under which guards.
`evolve`: how records change subscriptions.
`propose`: proposals for its next version.
`admission`: who is let in.
`assignor`: who gets which buckets, as a function of the layout and the consumers.
`target_assignment`: who shall have which, by who is there or away.
`handover`: when a bucket changes hands.
`coordinator`: the consumers that are there, and what each holds now.
`instances`: the processes that serve under names.
`marks`: whose a position is that Kafka has.
`known_positions`: which position counts, and what others have made of one.
`draining`: which segments it is through with.
`unserved`: a watchdog for what nobody serves.
`timing`: how patient all that is.
"""

# What code outside of core may import.
__all__ = [
    "admission",
    "coordinator",
    "draining",
    "instances",
    "known_positions",
    "marks",
    "propose",
    "subscription",
    "timing",
]
