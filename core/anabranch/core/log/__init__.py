"""The log: its records, their verdicts, and the state that they add up to.

`records`: proposals, as the log holds them.
`grounds`: the grounds of a choice of the load balancer, as a record says them.
`verdicts`: the answers to records.
`conflicts`: the rule by which one of several records for an entity wins.
`outcome`: a verdict, and the changes that come with it.
`state`: that state, and the questions that it answers.
`state_machine`: the parts of the nouns' machines: tables of moves, states and guards.
"""

# Code outside of core may import these.
__all__ = [
    "grounds",
    "outcome",
    "records",
    "state",
    "verdicts",
]
