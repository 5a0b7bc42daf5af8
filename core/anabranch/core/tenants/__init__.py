"""Tenants and their namespaces.

`tenant`: the log's entries for both.
`machine`: their moves, and the guards of these.
`limits`: the limits on a tenant's things.
`evolve`: the changes of both by records.
`propose`: the proposals for both.
"""

# Code outside of core may import these.
__all__ = [
    "limits",
    "propose",
    "tenant",
]
