"""Settings that the whole cluster overrides while it runs.

`override`: what the log keeps of one, and which forms it may have.
`machine`: which moves overrides make, under which guards, and how records change them.
"""

# Code outside of core may import these.
__all__ = [
    "override",
]
