"""Tenants and their namespaces.

`tenant`: what the log keeps of both.
`machine`: which moves they make, under which guards, and how records change them.
`limits`: how many things a tenant may have.
`propose`: how they are proposed.
"""

# What code outside of core may import.
__all__ = [
    "limits",
    "propose",
    "tenant",
]
