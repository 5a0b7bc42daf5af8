"""Who connects, and what of it may be read on the way: the shells of `core.security`.

`files`: files that are read again when they change.
`tls`: this server's certificate, and whose certificates of clients it trusts.
`handshakes`: TLS in front of a port.
"""
