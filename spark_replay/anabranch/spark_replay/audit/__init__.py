"""The audit: the whole log replayed with the core's rules, and held against `checks` of its own.

`run`: all of it, from the log to the report.
`inputs`, `segment_edges`, `segment_ends`: what it finds in Kafka and in the archive.
`job`, `replay`: the fold as one Spark job; one part of it.
`tally`, `verdict`: what a check has found, in a part and in all.
`statistics`, `role_history`: what happened, which is no violation.
`summary`: the result for programs; `table`: for terminals; `page`, `charts`: for eyes.
"""
