"""Sessions of brokers: leases, signs of life, and who has fallen silent.

`session`: what the log keeps of one.
`machine`: which moves it makes, from which states, under which guards.
`evolve`: how records change sessions.
`lease`: when a broker may act, and when it may be given up.
`membership`: a broker's own part.
`log_contact`: whether it still has the log.
"""

# What code outside of core may import.
__all__ = [
    "lease",
    "session",
]
