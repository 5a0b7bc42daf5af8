"""Auto-scaling (PIP-483): the rules by which a topic's segments split, merge or take other buckets.

`policy`: the settings, and their sources.
`decide`: the decision, a pure function.
`decisions`: its possible results.
`schedule`: the times of decisions, and the open steps of one.
`load`: a segment's traffic.
`meter`: the measurement of that traffic, over the last minute.
"""

# Code outside of core may import these.
__all__ = [
    "decide",
    "decisions",
    "load",
    "meter",
    "policy",
    "schedule",
]
