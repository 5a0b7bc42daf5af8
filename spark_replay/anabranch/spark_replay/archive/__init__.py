"""The archive: the log as Parquet, in a folder that the cluster knows.

`writer`: writes it. `contents`: its end, its own files, its rows. `registration`: its id, and the
cluster's knowledge of it. `folders`: the places of archives, on this machine or on any file system
that Hadoop knows.
"""
