"""Settings that the whole cluster overrides while it runs.

`machine`: which moves overrides make, under which guards, and how records change them.
"""

# No code outside of core may import these.
__all__: list[str] = []
