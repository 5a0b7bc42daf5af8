"""Who may do what: one pure function, the table that says what each request needs, the grants.

`principal`: who asks, and what a role may be called.
`actions`: what can be granted, and what a request may need.
`resources`: what a request is about.
`grants`: what is known of roles when a request is judged.
`authorize`: the judgement.
`table`: what each REST route, wire command and command of the command line needs.
`permission`: what the log keeps of one role's grants on one namespace or topic.
`machine`: which moves permissions make, and under which guards.
`evolve`: how records change them, and what goes with a namespace or a topic.
`changes`: what a change of the log needs of whoever asked for it.
`guesses`: how long whoever guesses waits for an answer.
"""

# What code outside of core may import.
__all__ = [
    "actions",
    "authorize",
    "changes",
    "grants",
    "guesses",
    "permission",
    "principal",
    "resources",
    "table",
]
