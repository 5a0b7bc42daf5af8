"""Spark itself: sessions, what a cluster's workers are sent, and what a job says meanwhile.

`settings`: where a job's Spark runs, and with how much.
`session`, `cluster`: a session, alone or of a standalone Spark.
`shipping`: what tasks run, as archives for workers.
`progress`: what a job is at.
`failures`: what Spark raises.
"""
