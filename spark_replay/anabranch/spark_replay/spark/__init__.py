"""Spark itself: sessions, the files for a cluster's workers, and the progress of a job.

`settings`: the place and the resources of a job's Spark. `session`, `cluster`: a session, alone or
of a standalone Spark. `shipping`: the code of tasks, as archives for workers. `progress`: the
present step of a job. `failures`: errors of Spark.
"""
