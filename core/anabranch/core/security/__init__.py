"""Authorization: one pure function, the table of the rights that each request needs, and the
grants.

`principal`: the asker, and the valid names of roles.
`actions`: the actions that can be granted, and the needs of requests.
`resources`: the subject of a request.
`authorize`: the judgement.
`judgements`: those that still hold.
`table`: the needs of each REST route and wire command.
`machine`: the moves of permissions, their guards, and their changes by records.
`changes`: the right that a change of the log needs from its asker.
`acls`: the ACLs that Kafka needs for the grants to count there as well.
"""

# Code outside of core may import these.
__all__ = [
    "acls",
    "actions",
    "authorize",
    "changes",
    "judgements",
    "principal",
    "resources",
    "table",
]
