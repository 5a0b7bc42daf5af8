"""The cluster: the settings that all of its nodes share.

`settings`: what the log keeps of them.
`machine`: how they come into it, and under which guards.
"""

# Code outside of core may import these.
__all__ = [
    "settings",
]
