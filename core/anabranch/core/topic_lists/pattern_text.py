"""Checks of a pattern of names without RE2, which clients do not have."""

from __future__ import annotations

import re
from typing import Final

from anabranch.core.errors import InvalidInputError

# Quoted text, an escaped character, a class, a bracket. Nothing is tried in a second way, as RE2
# reads a pattern in one way only.
_SIGNS: Final = re.compile(
    r"\\Q.*?\\E|\\[^Q]|\[\^?+\]?+(?>\[:.*?:\]|\\.|[^\]\\])*+\]|[()]", re.DOTALL
)


class PatternError(InvalidInputError):
    """No pattern of names that this release can use."""


def grouped(text: str) -> str:
    r"""A pattern as a group of a larger one, with the same meaning as alone.

    Raises PatternError for one that would not end where its group does. The anchors of its
    beginning and end are left out, because the whole text is matched anyway.

    >>> grouped("^orders-.*$"), grouped(r"[)]|cost\$")
    ('(?:orders-.*)', '(?:[)]|cost\\$)')
    """
    depth = 0
    for sign in _SIGNS.finditer(text):
        depth += (sign[0] == "(") - (sign[0] == ")")
        if depth < 0:
            break
    rest = _SIGNS.sub(lambda sign: "." * len(sign[0]), text)
    if depth or "[" in rest or "\\" in rest:
        raise PatternError(
            f"the topics' pattern {text!r} is not balanced: (, [ and \\Q need their ends ), ] and "
            "\\E; write \\( or \\[ for a bracket, and \\\\ for a \\"
        )
    body = text[:-1] if rest.endswith("$") else text
    return f"(?:{body.removeprefix('^')})"  # else a ? at its beginning would be the group's own
