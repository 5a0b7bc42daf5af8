"""The cluster: the settings that all of its nodes share.

`machine`: how they come into it, and under which guards.
"""

# No code outside of core may import these.
__all__: list[str] = []
