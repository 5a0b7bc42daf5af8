"""Who may do what: one pure function, the table that says what each request needs, the grants.

`principal`: who asks, and what a role may be called.
`actions`: what can be granted, and what a request may need.
`resources`: what a request is about.
`grants`: what is known of roles when a request is judged.
`authorize`: the judgement.
`judgements`: those that still hold.
`table`: what each REST route, wire command and command of the command line needs.
`permission`: what the log keeps of one role's grants on one namespace or topic.
`machine`: which moves permissions make, and under which guards.
`evolve`: how records change them, and what goes with a namespace or a topic.
`changes`: what a change of the log needs of whoever asked for it.
`acls`: what Kafka must have for the grants to count there as well.
`kafka_stems`: where names in Kafka begin alike.
`guesses`: how long whoever guesses waits for an answer.
`allowances`: how often a role may ask.
`touched`: whose rights a change may have touched.
"""

# What code outside of core may import.
__all__ = [
    "acls",
    "actions",
    "allowances",
    "authorize",
    "changes",
    "grants",
    "guesses",
    "judgements",
    "kafka_stems",
    "permission",
    "principal",
    "resources",
    "table",
    "touched",
]
