"""Topic lists: names of topics, assembled and sent within bounded memory (PIP-442).

`sorted_names`: names in order, in shared pieces, and their hash.
`topic_list`: the names that somebody follows, and what changed in them.
`pattern_text`: patterns as parts of larger ones.
`selection`: which topics are meant: a pattern of names, properties.
`matching`: how much of a node's time that may take.
`semaphore`: who gets permits, and when.
`errors`: why somebody does not.
"""

# What code outside of core may import.
__all__ = [
    "errors",
    "matching",
    "pattern_text",
    "selection",
    "semaphore",
    "sorted_names",
    "topic_list",
]
