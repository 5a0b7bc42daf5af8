"""Subscriptions of scalable topics (PIP-468): who is registered, and who reads what.

`subscription`: what the log keeps of one.
`machine`: its law.
`evolve`: how records change subscriptions.
`propose`: proposals for its next version.
`admission`: who is let in.
`assignment`: who shall have which buckets.
`coordinator`: who holds which now, and when they may change hands.
`deal`: who shall have what, by who is there.
`instances`: the processes that serve under names.
`unserved`: a watchdog for what nobody serves.
`timing`: how patient all that is.
"""

# What code outside of core may import.
__all__ = [
    "admission",
    "coordinator",
    "instances",
    "propose",
    "subscription",
    "timing",
]
