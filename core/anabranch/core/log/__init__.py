"""The log: its records, what each comes to, and the state that they add up to.

`records`: proposals, as the log holds them.
`grounds`: what a choice of the load balancer rested on, as a record says it.
`verdicts`: what each comes to.
`conflicts`: which of several records for one entity wins.
`outcome`: a verdict, and what changes with it.
`fold`: the function by which a log becomes a state.
`state`: that state, and what may be asked of it.
`replica`: a state with the offset that it stands for.
`digests`: a hash of it.
`state_machine`: what the nouns' machines are made of: tables of moves, states and guards.
"""

# What code outside of core may import.
__all__ = [
    "digests",
    "fold",
    "grounds",
    "outcome",
    "records",
    "replica",
    "state",
    "verdicts",
]
