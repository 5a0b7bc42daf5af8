"""Who may do what: one pure function, the table that says what each request needs, the grants.

`principal`: who asks, and what a role may be called.
`actions`: what can be granted, and what a request may need.
`resources`: what a request is about.
`grants`: what is known of roles when a request is judged.
`authorize`: the judgement.
`table`: what each REST route, wire command and command of the command line needs.
"""

# What code outside of core may import.
__all__ = [
    "actions",
    "authorize",
    "grants",
    "principal",
    "resources",
    "table",
]
