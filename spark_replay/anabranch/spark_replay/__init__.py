"""Archive, audit and back-test: the log, and loads of the past, replayed by Spark.

`archive` has the log as Parquet. `audit` replays and judges it, and `report` shows the result.
`backtest` tries other auto-scale policies on past loads. `sources` reads Kafka and archives, and
`spark` has sessions of Spark.
"""
