"""Auto-scaling (PIP-483): when a topic's segments split, merge or take other buckets.

`policy`: the settings, and where they come from.
`decide`: the decision, a pure function.
`decisions`: what it can come to.
`schedule`: when it is asked for, and what is left to do of it.
`load`: a segment's traffic.
`meter`: how that is known.
`rates`: rates over the last minute.
"""

# What code outside of core may import.
__all__ = [
    "decide",
    "decisions",
    "load",
    "meter",
    "policy",
    "schedule",
]
