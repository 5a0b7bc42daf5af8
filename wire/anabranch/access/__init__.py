"""How whoever asks nodes shows who they are, and makes sure of whom they ask; of both protocols.

Nothing here connects to anything: a `Credentials` says what is to be shown each time, `TlsFiles`
makes the TLS of a client. What is secret is in no `repr`, no message and no log. `home` tells where
a client was made, and that it is of use nowhere else.
"""

from anabranch.access.credentials import Basic, Credentials, Token, TokenSource
from anabranch.access.errors import CredentialsError
from anabranch.access.tls import Tls, TlsFiles

__all__ = [
    "Basic",
    "Credentials",
    "CredentialsError",
    "Tls",
    "TlsFiles",
    "Token",
    "TokenSource",
]
