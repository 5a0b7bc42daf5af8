"""Authentication, rights and encryption of connections: the shells of `core.security`.

`node`: all of it, as a node has it.
`files`: files that are read again when they change.
`tls`: this server's certificate, and the authorities of clients' certificates that it trusts.
`handshakes`: TLS in front of a port.
`credentials`: a client's credentials, and the result of a look at them.
`authenticator`: finds out by these who a client is: by a certificate, or by `tokens` (with the keys
    of `key_sets`, or of `key_set_url`).
`guard`: checks a principal's right before anything is done.
`admission`: both, for the binary protocol.
`open_rights`: rights that a watch or a session needs all the time, and ends without.
`outgoing`: the credentials of a node, or a proxy, for other nodes.
`acls`: Kafka's rules, made of grants.
"""
