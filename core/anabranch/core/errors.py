"""The errors that bad input raises; each message names the thing and the remedy."""

from __future__ import annotations


class AnabranchError(Exception):
    """Root of every error that Anabranch raises on purpose."""

    def __str__(self) -> str:
        """Is never empty, even if the party that the message quotes said nothing."""
        return super().__str__().strip() or (
            f"{' '.join((type(self).__doc__ or type(self).__name__).split())} No reason was given: "
            "look for it in the log of this process, and of whoever was asked."
        )


class InvalidInputError(AnabranchError, ValueError):
    """Input that no state of the cluster could make valid (HTTP 412 in the admin interface)."""


class UnknownSegmentError(InvalidInputError):
    """A segment id that the topic's layout does not have (HTTP 404)."""


class UncoveredHashError(InvalidInputError):
    """A position of the ring that no active segment of a topic's layout covers."""


class FaultError(AnabranchError):
    """A broken promise of our own code or of stored data; the process must stop, not guess."""
