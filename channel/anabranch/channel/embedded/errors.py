"""What can go wrong before and while the embedded Kafka runs; every message names the remedy."""


class EmbeddedError(Exception):
    """The embedded Kafka, or something it needs, is not available."""


class JavaUnavailableError(EmbeddedError):
    """There is no Java runtime, or one too old."""


class JarsUnavailableError(EmbeddedError):
    """The jars could not be fetched or put in place."""


class ChecksumMismatchError(EmbeddedError):
    """A fetched jar is not the one that the committed checksum names; it is never used."""


class KafkaStartError(EmbeddedError):
    """Kafka ended, or did not answer in time, while it was being started."""
