"""The clock for leases, silence and consumers' sessions, on both sides."""

from __future__ import annotations

import sys
import time

if sys.platform == "linux":

    def now() -> float:
        """Seconds, also those of a suspended machine: no lease must outlast its sleep."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:

    def now() -> float:
        """Seconds; on this system the clock may stop while the machine is suspended."""
        return time.monotonic()
