"""The errors before anything is shown. Each message names the thing and the remedy."""

from __future__ import annotations

from anabranch.core.errors import AnabranchError


class CredentialsError(AnabranchError):
    """The credentials cannot be had: their file cannot be read, or their function failed."""
