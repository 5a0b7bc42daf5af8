"""The clock that a consumer's session is measured on."""

from __future__ import annotations

import sys
import time

if sys.platform == "linux":

    def now() -> float:
        """Seconds, also those of a suspended machine: no session must outlast its sleep."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:

    def now() -> float:
        """Seconds; on this system the clock may stop while the machine is suspended."""
        return time.monotonic()
