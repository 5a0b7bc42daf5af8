"""`Turns`: groups take turns, and so do the members of each group, as a pure round-robin."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

_MemberT = TypeVar("_MemberT", bound=Hashable)


class Turns(Generic[_MemberT]):
    """The members that are ready. Each step takes as long with a thousand groups as with one."""

    def __init__(self) -> None:
        self._groups: OrderedDict[Hashable, OrderedDict[_MemberT, None]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, group: Hashable, member: _MemberT) -> None:
        """Puts a member behind those of its group, and a new group behind all. A member that is
        there keeps its place.
        """
        self._groups.setdefault(group, OrderedDict()).setdefault(member)

    def discard(self, group: Hashable, member: _MemberT) -> None:
        """Takes a member out, if it is there."""
        members = self._groups.get(group)
        if members is not None:
            members.pop(member, None)
            if not members:
                del self._groups[group]

    def take(self) -> _MemberT:
        """Returns the member whose turn it is. It and its group have their next one after all
        others. There must be one.
        """
        group, members = next(iter(self._groups.items()))
        member = next(iter(members))
        self._groups.move_to_end(group)
        members.move_to_end(member)
        return member
