"""Checks of a pattern of names without RE2, which clients do not have."""

from __future__ import annotations

from anabranch.core.errors import InvalidInputError


class PatternError(InvalidInputError):
    """No pattern of names that this release can use."""


def grouped(text: str) -> str:
    r"""A pattern as a group of a larger one, with the same meaning as alone.

    Raises PatternError for one that would not end where its group does. The anchors of its
    beginning and end are left out, because the whole text is matched anyway.

    >>> grouped("^orders-.*$"), grouped(r"[)]|cost\$")
    ('(?:orders-.*)', '(?:[)]|cost\\$)')
    """
    at = depth = 0
    body = text
    while at < len(text):
        if text[at] in "\\[":
            at = _end_of_sign(text, at)
            continue
        depth += (text[at] == "(") - (text[at] == ")")
        if depth < 0:
            raise _unbalanced(
                text, f"the ) after {text[:at]!r} closes nothing", "\\) for a bracket"
            )
        at += 1
        if at == len(text) and text[at - 1] == "$":
            body = text[:-1]
    if depth:
        raise _unbalanced(text, "a ) is missing", "\\( for a bracket")
    return f"(?:{body.removeprefix('^')})"  # else a ? at its beginning would be the group's own


def _end_of_sign(text: str, at: int) -> int:
    """The end of a sign that begins with a backslash or a [."""
    if text[at] == "[":
        return _end_of_class(text, at)
    if text.startswith("\\Q", at):
        end = text.find("\\E", at + 2)
        if end < 0:
            raise _unbalanced(text, "a \\E is missing", "it behind what \\Q begins")
        return end + 2
    if at + 1 == len(text):
        raise _unbalanced(text, "nothing stands behind the last \\", "\\\\ for one")
    return at + 2


def _end_of_class(text: str, at: int) -> int:
    at += 1
    at += text.startswith("^", at)
    first = at
    while at < len(text):
        if text[at] == "]" and at > first:
            return at + 1
        named_end = text.find(":]", at + 2) if text.startswith("[:", at) else -1
        if named_end >= 0:
            at = named_end + 2
        else:
            at += 2 if text[at] == "\\" else 1
    raise _unbalanced(text, "a ] is missing", "\\[ for a bracket")


def _unbalanced(text: str, why: str, remedy: str) -> PatternError:
    return PatternError(f"the topics' pattern {text!r} is not balanced: {why}; write {remedy}")
