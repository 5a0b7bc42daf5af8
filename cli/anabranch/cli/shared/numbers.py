"""Numbers as options take them."""

from __future__ import annotations

import math
from typing import Any, Final

import click


class Finite(click.FloatRange):
    """A range of numbers without `nan` and `inf`, which click takes for members of any range."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value} is no finite number.", param, ctx)
        return found


POSITIVE: Final = Finite(0, min_open=True)
NOT_NEGATIVE: Final = Finite(0)
