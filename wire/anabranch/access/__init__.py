"""The identity that a client shows to nodes, and its check of theirs, for both protocols.

Nothing here connects to anything. A `Credentials` tells what to show each time, and `TlsFiles`
makes the TLS of a client. Secrets are in no `repr`, no message and no log. `home` knows the process
and loop in which a client was made, because it is of no use elsewhere.
"""

from anabranch.access.credentials import Credentials, Token, TokenSource
from anabranch.access.errors import CredentialsError
from anabranch.access.tls import Tls, TlsFiles

__all__ = [
    "Credentials",
    "CredentialsError",
    "Tls",
    "TlsFiles",
    "Token",
    "TokenSource",
]
