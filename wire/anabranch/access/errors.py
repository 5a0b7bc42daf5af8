"""What can go wrong before anything is shown; each message names the thing and the remedy."""

from __future__ import annotations

from anabranch.core.errors import AnabranchError


class CredentialsError(AnabranchError):
    """What is to be shown cannot be had: its file cannot be read, or whoever makes it failed."""
