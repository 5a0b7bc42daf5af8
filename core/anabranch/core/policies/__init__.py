"""Operators' policies of placement: isolation policies and failure domains.

`patterns`: the names that a policy's expressions match.
`machine`: the moves of policies with their guards, and the changes by records.
"""

# Code outside of core may import these.
__all__ = [
    "patterns",
]
