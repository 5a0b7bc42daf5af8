"""The only declaration of a setting: a field of a struct, with its bounds and its sentence.

    split_interval_minutes: Annotated[float, about("Time between looks.", gt=0)] = 1.0

A node makes its settings, their page and their checks of this.
"""

from __future__ import annotations

from typing import Any

from msgspec import Meta


def about(
    sentence: str,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    pattern: str | None = None,
    run_time: bool = True,
) -> Meta:
    """Returns the sentence for users, with the bounds of the value or the pattern of the text.

    `run_time`: the cluster may override the setting while its nodes run.
    """
    limits: dict[str, Any] = {"ge": ge, "gt": gt, "le": le, "lt": lt, "pattern": pattern}
    return Meta(description=sentence, extra={"run_time": run_time}, **limits)
