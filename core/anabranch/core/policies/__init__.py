"""What operators say of where things may be placed: isolation policies, failure domains, brokers of
Kafka that are drained.

`policy`: what the log keeps of one, and which forms it may have.
`patterns`: which names a policy's expressions match.
`machine`: which moves policies make, and under which guards.
`evolve`: how records change them.
"""

# What code outside of core may import.
__all__ = [
    "patterns",
    "policy",
]
