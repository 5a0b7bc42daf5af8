"""Patterns of isolation policies, which RE2 matches against whole names.

The node that sets a policy refuses a pattern that is none of RE2's. The fold does not check it,
because releases of RE2 differ in the patterns they accept, and all nodes must agree on a record's
effect. Nodes usually have one release of RE2, because the requirements pin it. A pattern that a
node's RE2 does not accept matches nothing there.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from anabranch.core.errors import InvalidInputError
from anabranch.core.expressions import STEPS_MAX, compiled

POLICY_STEPS_MAX: Final = 10_000  # for all patterns of a policy: a new name is held against all
_compiled = lru_cache(maxsize=300)(compiled)  # a policy has no more patterns


def parse_pattern(text: str) -> Any:
    """Compiles an expression that an operator has given. Raises InvalidInputError, which says why
    that is not possible.
    """
    try:
        pattern = _compiled(text)
    except ValueError as error:
        raise InvalidInputError(
            f"pattern {text!a} is not possible, it is none of RE2's: {error}; whole names are "
            "matched, without looking around or back: write \\ before a sign that means itself"
        ) from None
    if pattern.programsize > STEPS_MAX:
        raise InvalidInputError(
            f"pattern {text!a} is not possible: it takes {pattern.programsize} steps, of at most "
            f"{STEPS_MAX}; use smaller repetitions"
        )
    return pattern


def check_patterns(patterns: Iterable[str]) -> None:
    """Checks all patterns of a policy. Raises InvalidInputError."""
    steps = 0
    for each in patterns:
        steps += parse_pattern(each).programsize
        if steps > POLICY_STEPS_MAX:
            raise InvalidInputError(
                "the policy's patterns are not possible: together they take more than "
                f"{POLICY_STEPS_MAX} steps; name several brokers by one pattern, repeat less, or "
                "divide the namespaces among policies"
            )


@lru_cache(maxsize=10_000)
def matches(text: str, name: str) -> bool:
    """Tells whether the expression matches the whole name; an invalid one matches nothing."""
    try:
        return _compiled(text).fullmatch(name) is not None
    except ValueError:
        return False
