"""The cluster: the settings that all of its nodes share.

`settings`: what the log keeps of them.
`machine`: how they come into it.
"""

# What code outside of core may import.
__all__ = [
    "settings",
]
