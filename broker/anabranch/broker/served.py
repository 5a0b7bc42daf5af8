"""What a runtime tells whoever serves bundles on this node, and is told by them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from anabranch.core.state import Change


class UnitServer(Protocol):
    """Serves what lies in the bundles that this node owns. Called in the event loop."""

    def opened(self, unit: str) -> None:
        """This node serves the bundle from now on."""
        ...

    def close(self, unit: str) -> None:
        """Serve the bundle no more; then call the runtime's `closed`, at once or later."""
        ...

    def folded(self, changes: Iterable[Change]) -> None:
        """The state has changed: every change, in order, also those that are changed again."""
        ...

    def ticked(self) -> None:
        """Time has passed: about a tenth of a second."""
        ...

    def replaced(self) -> None:
        """The state was loaded anew: anything may have changed."""
        ...
