"""Topic lists: names of topics, assembled and sent within bounded memory (PIP-442).

`topic_list`: the names that a watcher follows in order, their hash, and their changes.
`pattern_text`: patterns as parts of larger ones.
`selection`: the choice of topics: a pattern of names, properties.
`semaphore`: the order and the times of permits.
`errors`: the reasons of refusals.
"""

# Code outside of core may import these.
__all__ = [
    "errors",
    "pattern_text",
    "selection",
    "semaphore",
    "topic_list",
]
