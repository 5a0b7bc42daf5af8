"""Spark itself: sessions, and errors.

`settings`: the place and the resources of a job's Spark. `session`, `cluster`: a session, alone or
of a standalone Spark. `failures`: errors of Spark.
"""
