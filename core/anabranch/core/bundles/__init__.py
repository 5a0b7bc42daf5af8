"""Service units (PIP-192): bundles of a namespace, and the leadership of a cluster.

`machine`: its moves with their states and guards, and the changes by records.
`guards`: the conditions of its moves, and the one that a topic's controller meets.
`propose`: a broker's proposals for them, and the broker with the fewest.
`give_away`: the proposals of a broker that stops.
"""

# Code outside of core may import these.
__all__ = [
    "guards",
    "propose",
]
