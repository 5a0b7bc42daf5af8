"""Entities: the things that the log keeps, by key, and the forms that they may have.

They know nothing of records: the packages of the nouns say how records change them.

`cluster`: the settings that all nodes share.
`session`: a broker's session.
`tenant`: a tenant, and a namespace.
`unit`: a service unit: a bundle, or the leadership.
`topic`: a scalable topic.
`segment`: one of its segments.
`layout`: the DAG of its segments.
`giving_back`: the segment that an adopted Kafka topic becomes once it is given back.
`subscription`: a subscription of a scalable topic.
`permission`: one role's grants on one namespace or topic.
`placement_policy`: an operator's policy of placement.
`override`: a setting that the whole cluster overrides.
`archive`: an archive of the log.
"""

# Code outside of core may import these.
__all__ = [
    "archive",
    "cluster",
    "giving_back",
    "layout",
    "override",
    "permission",
    "placement_policy",
    "segment",
    "session",
    "subscription",
    "tenant",
    "topic",
    "unit",
]
