"""The exit statuses of commands, as the end of `anabranch --help` lists them."""

from __future__ import annotations

from enum import IntEnum, unique


@unique
class ExitStatus(IntEnum):
    """The way a command ended. A command without a word on it is DONE."""

    DONE = 0
    BAD = 1  # done, and the answer is bad: refused, or violations found
    NOT_DONE = 2  # wrong usage or settings, or nothing answers
    PARTLY = 3  # `topics consume`: nothing came for so long; `audit`: no violations, but a gap
    INTERRUPTED = 130  # by Ctrl-C, or a question was answered with no
