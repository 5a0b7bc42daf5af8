"""Archive, audit and back-test: the log, and loads of the past, replayed by Spark.

The log as Parquet is the `archive`; replayed and judged it is the `audit`, and `report` shows what
was found. What other auto-scale policies would have done is in `backtest`. What of Kafka and of
archives is read is in `sources`, and sessions of Spark are in `spark`.
"""
