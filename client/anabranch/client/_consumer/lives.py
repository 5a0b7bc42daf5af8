"""`Lives`: owners of a bucket that ended without a release while its watermark stood.

A message whose handler ends the process comes again to the next one, for ever. So each owner
commits that it begins. After two that ended without progress the next one is careful: it works on
one message at a time in the whole process, and commits which one before it begins. If it ends, too,
the next one knows the killer. It is careful for as many attempts as may have been made since the
last commit of the others: a fast killer leaves no time to commit what is done before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_CAREFUL: Final = 3  # the life from which an owner is careful
_MOST: Final = 127
_ATTEMPTS: Final = 500  # for which an owner is careful at least


@dataclass(slots=True)
class Lives:
    """A bucket's owner knows this of those before it, and tells the next one.

    `before`: owners that ended so. `killer`: the offset of the message with which a careful one
    ended. `told_at`: the version of the position with which this is committed.
    """

    before: int = 0
    killer: int | None = None
    suspect: int | None = None
    told_at: int = 0
    _passed: int = 0  # attempts while it was careful
    _is_over: bool = False  # there was progress, or the bucket is given up in good order

    @classmethod
    def after(cls, lives: int, suspect: int | None) -> Lives:
        """Makes that of an owner which finds these in the committed position."""
        return cls(lives, suspect if lives >= _CAREFUL else None)

    @property
    def is_careful(self) -> bool:
        return not self._is_over and self.before + 1 >= _CAREFUL

    @property
    def said(self) -> int:
        """The number for the next owner."""
        return 0 if self._is_over else min(_MOST, self.before + bool(self.told_at))

    def must_tell(self, offset: int) -> bool:
        """Tells whether something is to be committed before that message begins."""
        suspect = offset if self.is_careful else None
        if self.told_at and self.suspect == suspect:
            return False
        self.suspect = suspect
        return True

    def progress(self) -> None:
        """Notes that the watermark has moved."""
        if not self.is_careful:
            self.end()

    def passed(self, most: int, *, is_all: bool) -> None:
        """Notes that an attempt of a careful owner has ended, and not the process. `most` may have
        run at once, and `is_all`: nothing else of the bucket is ready.
        """
        self._passed += 1
        if is_all or self._passed >= max(most, _ATTEMPTS):
            self.end()

    def end(self) -> None:
        """Notes that the killer is behind, or that the bucket is given up in good order."""
        self._is_over, self.suspect = True, None
