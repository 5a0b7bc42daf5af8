"""Snapshots of the state, the log that is trimmed behind them, and faults of one."""
