"""Tenants and their namespaces.

`machine`: which moves they make, under which guards, and how records change them.
`limits`: how many things a tenant may have.
`propose`: how they are proposed.
"""

# Code outside of core may import these.
__all__ = [
    "limits",
    "propose",
]
