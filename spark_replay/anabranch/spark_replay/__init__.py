"""Archive, audit and back-test: the log, and loads of the past, replayed by Spark.

`archive` has the log as Parquet. `audit` replays and judges it, and `report` shows the result.
`backtest` tries other auto-scale policies on past loads. `sources` reads Kafka and archives,
`kafka_options` has Spark's words for Kafka's security, and `spark` has sessions of Spark.
"""
