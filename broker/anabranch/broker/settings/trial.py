"""Other settings of the balancer, to be tried: by a node's names, and of the values it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError

from anabranch.broker.settings.balance import BalanceFields
from anabranch.core.balance.forecast import SHEDDING_FIELDS
from anabranch.core.balance.settings import NAMES
from anabranch.core.errors import InvalidInputError
from anabranch.core.quantities import plain_form

SettingValue = bool | int | float | str
TRIED: Final = tuple(NAMES[field] for field in SHEDDING_FIELDS)
_PROBLEMS_MAX: Final = 10
_KNOWN: Final = frozenset(NAMES.values())


def tried(settings: BalanceFields, given: Mapping[str, object]) -> BalanceFields:
    """The settings with those given in place of their own.

    Raises InvalidInputError that has every problem, of many the first.
    """
    problems: list[str] = []
    wanted: dict[str, object] = {}
    own = shown(settings)
    for written, said in given.items():
        try:
            name, value = plain_form(written, said, _KNOWN)
        except InvalidInputError as error:
            problems.append(f"{written:.100}: {error}")
            continue
        if name not in TRIED:
            problems.append(_unusable(name[:100]))
        elif name in wanted:
            problems.append(f"{name} is given twice, by either of its names")
        elif isinstance(value, bool) and not isinstance(own[name], bool):
            problems.append(f"{name} is {value!r}: it takes no true or false")
        else:
            wanted[name] = value
        if len(problems) == _PROBLEMS_MAX:
            raise InvalidInputError("; ".join(problems))
    before = settings.model_dump(by_alias=True, include=set(BalanceFields.model_fields))
    try:
        found = BalanceFields.model_validate({**before, **wanted})
    except ValidationError as error:
        problems += [
            f"{each['loc'][0]} is {each['input']!r:.200}: {each['msg']}"
            for each in error.errors(include_url=False)
        ]
        raise InvalidInputError("; ".join(problems)) from None
    wrong = found.balance_problem()
    if wrong:
        problems.append(wrong)
    if problems:
        raise InvalidInputError("; ".join(problems))
    return found


def shown(settings: BalanceFields) -> dict[str, SettingValue]:
    """What a cycle of shedding goes by, by name."""
    values = settings.model_dump(mode="json", by_alias=True)
    return {name: values[name] for name in TRIED}


def _unusable(name: str) -> str:
    if name in _KNOWN:
        return (
            f"{name} has no part in a cycle of shedding, which takes loads and bundles as they are "
            "reported: leave it out"
        )
    import difflib  # takes memory, which a node whose settings are right need not have

    near = difflib.get_close_matches(name, TRIED, n=2, cutoff=0.6)
    return f"{name} is no setting of the load balancer" + (
        f"; did you mean {' or '.join(near)}?" if near else "; docs/settings.md has them all"
    )
