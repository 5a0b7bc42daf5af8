"""The archive: the log as Parquet, in a folder that the cluster knows.

`writer`: writes it.
`contents`: how far it has got, and which files are its own.
`reading`: its rows.
`identity`, `registration`: who it is, and what the cluster knows of it.
`folders`: where archives lie, on this machine or on any file system that Hadoop knows.
"""
