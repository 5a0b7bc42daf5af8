"""What may be missing, and in a test is not."""

from __future__ import annotations

from typing import TypeVar

_T = TypeVar("_T")


def there(found: _T | None, sought: object = "what was looked for") -> _T:
    """What was found, which must be there."""
    assert found is not None, f"{sought} is not there"
    return found
