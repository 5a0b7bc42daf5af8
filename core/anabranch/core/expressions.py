"""Regular expressions that come from outside, as RE2 compiles them.

RE2, whose Java form Pulsar uses too, takes time that is linear in the text, whatever the
expression. The time for each character grows with the expression's program.
"""

from __future__ import annotations

from typing import Any, Final

STEPS_MAX: Final = 1_000  # in a program; a character of an expression makes one or two
_MEMORY_MAX: Final = 1 << 18  # for one expression, with RE2's memory of its matches


def compiled(text: str) -> Any:
    """Returns RE2's expression, whose steps are its `programsize`. Raises ValueError, with RE2's
    reason alone.
    """
    import re2  # takes megabytes, which a process that is asked for no expression need not have

    options = re2.Options()
    options.max_mem = _MEMORY_MAX
    options.never_capture = True  # groups would cost a slower way of matching
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        told: bytes = error.args[0]
    raise ValueError(told.decode(errors="replace"))
