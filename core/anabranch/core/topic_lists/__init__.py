"""Topic lists: names of topics, assembled and sent within bounded memory (seed 003).

`semaphore`: who gets permits, and when.
`errors`: why somebody does not.
"""

# What code outside of core may import.
__all__ = ["errors", "semaphore"]
