"""The audit: replays the whole log with the core's rules, and judges it by `checks` of its own.

`run`: all of it, from the log to the report.
`inputs`, `segment_edges`, `segment_ends`: its reads of Kafka and of the archive.
`job`, `replay`: the fold as one Spark job; one part of it.
`tally`, `verdict`: the result of a check, in a part and in all.
`statistics`: figures, which are no violations.
`report`: the result for programs, for terminals, for eyes.
"""
