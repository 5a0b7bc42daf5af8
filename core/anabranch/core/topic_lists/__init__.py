"""Topic lists: names of topics, assembled and sent within bounded memory (seed 003).

`sorted_names`: names in order, in shared pieces, and their hash.
`topic_list`: the names that somebody follows, and what changed in them.
`selection`: which topics are meant: a pattern of names, properties.
"""

# What code outside of core may import.
__all__ = ["selection", "sorted_names", "topic_list"]
