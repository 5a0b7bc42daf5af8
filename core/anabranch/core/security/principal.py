"""`Principal`: the asker, as far as a node made sure of it, and the valid names of roles.

A role is a text that tokens and certificates carry and grants name (Pulsar's "role token"). Its
characters have no further meaning: no pattern, no prefix.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

import msgspec

from anabranch.core.errors import InvalidInputError

ROLE_CHARACTERS_MAX: Final = 255
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Principal(msgspec.Struct, frozen=True):
    """The asker. `role` is "" for a client that has not said its role.

    `proxied_by`: the role of the proxy that speaks for them, "" if there is none (Pulsar's
    "original principal" is `role` then). `method`: the way in which the node made sure of it, for
    people.
    """

    role: str
    proxied_by: str = ""
    method: str = ""


NOBODY: Final = Principal("")


def spoken_for(speaker: Principal, original: str, proxies: Collection[str]) -> Principal | None:
    """Returns the principal that the speaker asks for, by name; None if it may not.

    A proxy may ask for roles that are no proxies. A principal that a proxy speaks for cannot speak
    for others.
    """
    if speaker.proxied_by or speaker.role not in proxies:
        return None
    if original in proxies or not is_role(original):
        return None
    return Principal(original, speaker.role, speaker.method)


def is_role(text: str) -> bool:
    """Tells whether the text is a valid name of a role.

    >>> is_role("river-ops"), is_role("spiffe://acme/shop"), is_role(""), is_role("a" * 256)
    (True, True, False, False)
    >>> is_role(" ada"), is_role(chr(10).join("ab"))
    (False, False)
    """
    if not 0 < len(text) <= ROLE_CHARACTERS_MAX or text != text.strip():
        return False
    return _UNPRINTABLE.search(text) is None


def check_role(text: str) -> str:
    """The role. Raises InvalidInputError for a text that is none."""
    if not is_role(text):
        raise InvalidInputError(
            f"role {text[:ROLE_CHARACTERS_MAX]!a} is not valid: give 1 to {ROLE_CHARACTERS_MAX} "
            "characters that can be printed, without a space at its ends"
        )
    return text
