"""Topic lists: names of topics, assembled and sent within bounded memory (PIP-442).

`sorted_names`: names in order, in shared pieces, and their hash.
`topic_list`: the names that a watcher follows, and their changes.
`pattern_text`: patterns as parts of larger ones.
`selection`: the choice of topics: a pattern of names, properties.
`matching`: the limit on a node's time for that choice.
`semaphore`: the order and the times of permits.
`errors`: the reasons of refusals.
"""

# Code outside of core may import these.
__all__ = [
    "errors",
    "matching",
    "pattern_text",
    "selection",
    "semaphore",
    "sorted_names",
    "topic_list",
]
