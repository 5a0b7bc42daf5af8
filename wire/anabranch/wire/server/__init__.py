"""The node's side: accepts clients, finds out their identity, counts them, and refuses them.

`server`: accepts clients and hands their commands on. `identity`: asks a client for its identity
when it connects, and again when that is over. `gate`: limits the resources of clients.
`refusals`: a refusal in the form that each command expects.
"""
