"""Snapshots of the state, the log that is trimmed behind them, and what may be wrong with one."""
