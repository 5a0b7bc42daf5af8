"""Subscriptions of scalable topics (PIP-468): their registered consumers, and the buckets of each.

`machine`: its moves, the states that they start from, their guards, and the changes by them.
`propose`: proposals for its next version.
`admission`: the admission of consumers.
`assignor`: the target of buckets, as a function of the layout and the consumers.
`absence`: the consumers that are away, and the share that each keeps.
`target_assignment`: that target, with regard to the absent consumers, and its watchdog.
`handover`: the time at which a bucket changes hands between the processes of consumers.
`coordinator`: the present consumers, and the buckets that each holds now.
`known_positions`: the position that counts, its mark, and foreign changes of one.
`draining`: the segments that it has finished, and those that it may read because of that.
`timing`: the time limits of all that.
"""

# Code outside of core may import these.
__all__ = [
    "admission",
    "coordinator",
    "draining",
    "known_positions",
    "propose",
    "timing",
]
