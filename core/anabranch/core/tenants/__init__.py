"""Tenants and their namespaces.

`tenant`: what the log keeps of both.
`machine`: which moves they make, and under which guards.
`evolve`: how records change them.
"""

# What code outside of core may import.
__all__ = [
    "tenant",
]
