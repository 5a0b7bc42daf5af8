"""The log folded into RocksDB views, and the queries on them."""
