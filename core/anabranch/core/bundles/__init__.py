"""Service units (PIP-192): bundles of a namespace, and the leadership of a cluster.

`unit`: what the log keeps of one.
`machine`: which moves it makes, from which states, under which guards.
`guards`: the conditions of its moves.
`evolve`: how records change units.
`propose`: what a broker would like to happen to them.
`placement`: which broker a unit should go to.
`duties`: what the leader looks after.
"""

# What code outside of core may import.
__all__ = [
    "propose",
    "unit",
]
