"""Archives of the log: the cluster trims no record that one of them still needs.

`machine`: which moves they make, under which guards, and how records change them.
"""

# Code outside of core may import these.
__all__ = [
    "machine",
]
