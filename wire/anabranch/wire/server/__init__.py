"""The node's side: clients are accepted, known for who they are, counted, and refused.

`server`: accepts them and hands their commands on.
`admission`, `identity`: who a client is; asked when it connects, and again when that is over.
`gate`: what clients may use up.
`refusals`: a refusal as each command expects it.
"""
