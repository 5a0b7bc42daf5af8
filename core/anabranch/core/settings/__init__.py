"""Settings: their declarations, and those that the whole cluster overrides while it runs.

`declared`: the part of a setting's declaration that its type and default do not say.
`machine`: the moves of overrides, their guards, and the changes that records make.
"""

# Code outside of core may import these.
__all__ = [
    "declared",
]
