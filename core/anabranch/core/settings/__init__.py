"""Settings: how they are declared, and those that the whole cluster overrides while it runs.

`declared`: what is said of a setting where it is declared.
`override`: what the log keeps of one, and which forms it may have.
`machine`: which moves overrides make, under which guards, and how records change them.
"""

# Code outside of core may import these.
__all__ = [
    "declared",
    "override",
]
