"""Archives of the log, so that nothing is trimmed that one of them still needs.

`archive`: what the log keeps of one.
`machine`: which moves they make, under which guards, and how records change them.
"""

# What code outside of core may import.
__all__ = [
    "archive",
    "machine",
]
