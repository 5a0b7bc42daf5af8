"""`Allowances`: a limit on a role's requests: so many in a second, and as many at once.

Each role has a bucket that holds a second's requests and fills as time passes. The module keeps one
number of it, the time at which it is full again. A role that has been silent for so long is as good
as one that never came, and is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

ROLES_MAX: Final = 10_000
_FULL_S: Final = 1.0  # in which an empty bucket fills


class Allowances:
    """The allowances of all roles. Times are in seconds of any one clock."""

    def __init__(self, requests_per_s: int) -> None:
        self._each_s = _FULL_S / requests_per_s
        self._full_at: OrderedDict[str, float] = OrderedDict()  # the longest silent role first

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, role: str, now: float) -> float:
        """Takes a request of the role: 0.0; or takes none, and says in how many seconds there is
        one.
        """
        full_at = max(now, self._full_at.get(role, now)) + self._each_s
        wait_s = full_at - now - _FULL_S
        if wait_s > self._each_s * 1e-6:  # sums of fractions are not exact
            return wait_s
        self._full_at[role] = full_at
        self._full_at.move_to_end(role)
        self._forget(now)
        return 0.0

    def _forget(self, now: float) -> None:
        """Forgets roles whose buckets are full, two of them for each one that came. Beyond
        `ROLES_MAX`, which are more roles than ask in a second, it forgets the longest silent ones.
        """
        for _ in range(2):
            role, full_at = next(iter(self._full_at.items()))
            if full_at > now and len(self._full_at) <= ROLES_MAX:
                return
            del self._full_at[role]
