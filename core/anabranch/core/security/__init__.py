"""Authorization: one pure function, the table of the rights that each request needs, and the
grants.

`principal`: the asker, and the valid names of roles.
`actions`: the actions that can be granted, and the needs of requests.
`resources`: the subject of a request.
`grants`: the known grants of roles at a judgement.
`authorize`: the judgement.
`judgements`: those that still hold.
`table`: the needs of each REST route and wire command.
`machine`: the moves of permissions, and their guards.
`evolve`: the changes of permissions by records.
`changes`: the right that a change of the log needs from its asker.
`acls`: the ACLs that Kafka needs for the grants to count there as well.
`allowances`: a limit on the rate of a role's requests.
"""

# Code outside of core may import these.
__all__ = [
    "acls",
    "actions",
    "allowances",
    "authorize",
    "changes",
    "grants",
    "judgements",
    "principal",
    "resources",
    "table",
]
