"""`Principal`: who asks, as far as that was made sure of; and what a role may be called.

A role is a text that tokens and certificates carry and grants name (Pulsar's "role token"). Nothing
is read into its characters: no pattern, no prefix with a meaning.
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
    """Who asks. `role` is "" for somebody who has not said who they are.

    `proxied_by`: the role of the proxy that speaks for them, "" where nobody does (Pulsar's
    "original principal" is `role` then). `method`: how it was made sure of, for people to read.
    """

    role: str
    proxied_by: str = ""
    method: str = ""


NOBODY: Final = Principal("")


def spoken_for(speaker: Principal, original: str, proxies: Collection[str]) -> Principal | None:
    """Whoever the speaker asks for, by name; None where it may not.

    A proxy may, for roles that are none; and who is spoken for already speaks for nobody else.
    """
    if speaker.proxied_by or speaker.role not in proxies:
        return None
    if original in proxies or not is_role(original):
        return None
    return Principal(original, speaker.role, speaker.method)


def is_role(text: str) -> bool:
    """Whether a role may be called so.

    >>> is_role("river-ops"), is_role("spiffe://acme/shop"), is_role(""), is_role("a" * 256)
    (True, True, False, False)
    >>> is_role(" ada"), is_role(chr(10).join("ab"))
    (False, False)
    """
    if not 0 < len(text) <= ROLE_CHARACTERS_MAX or text != text.strip():
        return False
    return _UNPRINTABLE.search(text) is None


def check_role(text: str) -> str:
    """The role. Raises InvalidInputError for what is none."""
    if not is_role(text):
        raise InvalidInputError(
            f"role {text[:ROLE_CHARACTERS_MAX]!a} is not valid: give 1 to {ROLE_CHARACTERS_MAX} "
            "characters that can be printed, without a space at its ends"
        )
    return text
