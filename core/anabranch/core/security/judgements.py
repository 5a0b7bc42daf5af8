"""`Judgements`: the answers of `authorize`, for as long as they cannot change.

An answer follows from the folded state, from settings that do not change, and from the question. So
it holds as long as the state stands at the same offset of the log. The next folded record, whatever
it changes, removes all answers. A client that asks the same again and again, as look-ups of topics
do, is judged once for each record.
"""

from __future__ import annotations

from typing import Final, Protocol

from anabranch.core.log.state import StateReader
from anabranch.core.security.actions import Need
from anabranch.core.security.authorize import Grants, Judgement, authorize
from anabranch.core.security.changes import FoldedGrants
from anabranch.core.security.principal import Principal
from anabranch.core.security.resources import ResourceName

KEPT_MAX: Final = 4_096


class JudgedState(StateReader, Protocol):
    """A state of which judgements are kept: its place in the log tells that it has changed."""

    @property
    def next_offset(self) -> int: ...


class Judgements:
    """The judgements of a node. `superusers`, `proxies`: those roles by its settings."""

    def __init__(self, superusers: frozenset[str], proxies: frozenset[str]) -> None:
        self._superusers = superusers
        self._proxies = proxies
        self._kept: dict[tuple[Principal, Need, ResourceName], Judgement] = {}
        self._state: JudgedState | None = None
        self._offset = -1

    def __len__(self) -> int:
        return len(self._kept)

    def of(
        self, state: JudgedState, principal: Principal, need: Need, resource: ResourceName
    ) -> Judgement:
        """Returns the answer of `authorize` by the present state."""
        if state is not self._state or state.next_offset != self._offset:
            self._kept.clear()
            self._state, self._offset = state, state.next_offset
        asked = (principal, need, resource)
        found = self._kept.get(asked)
        if found is None:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            grants = Grants(FoldedGrants(state), self._superusers, self._proxies)
            found = self._kept[asked] = authorize(grants, principal, need, resource)
        return found
