"""Tenants and their namespaces.

`tenant`: what the log keeps of both.
`machine`: which moves they make, and under which guards.
`limits`: how many things a tenant may have.
`evolve`: how records change them.
`propose`: how they are proposed.
"""

# What code outside of core may import.
__all__ = [
    "limits",
    "propose",
    "tenant",
]
