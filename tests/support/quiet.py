"""What tests' own clients of Kafka are given: they write nothing.

One that outlives its Kafka, held by the frames of a test that failed, would say every second that
nobody is there, and bury why the test failed.
"""

from __future__ import annotations

from typing import Any, Final

QUIET: Final[dict[str, Any]] = {"log_level": 0}
