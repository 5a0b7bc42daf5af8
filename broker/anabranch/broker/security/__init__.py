"""Who connects, and what of it may be read on the way: the shells of `core.security`.

`node`: all of it, as a node has it.
`files`: files that are read again when they change.
`tls`: this server's certificate, and whose certificates of clients it trusts.
`handshakes`: TLS in front of a port.
`certified`: connections that end when a port does not trust their client's authority any more.
`credentials`: what a client shows, and what comes of it.
`providers`: the ways to show it, of which `tokens` (by the keys of `key_sets`, or fetched by
`key_set_url`), `certificates` and `basic` are one each.
`authenticator`: who a client is, by these.
`guard`: whether it may, asked before anything is done.
`admission`: both, for the binary protocol.
`open_rights`: what goes on by a right, and ends with it.
`outgoing`: what a node, or a proxy, shows other nodes.
`acls`: what was granted, told to Kafka.
"""
