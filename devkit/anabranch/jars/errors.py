"""Errors of Java or the jars. Every message names the remedy."""

from anabranch.core.errors import AnabranchError


class JavaUnavailableError(AnabranchError):
    """There is no Java runtime, or one too old."""


class JarsUnavailableError(AnabranchError):
    """The jars could not be fetched or put in place."""


class ChecksumMismatchError(AnabranchError):
    """A fetched jar is not the one that the committed checksum names; it is never used."""
