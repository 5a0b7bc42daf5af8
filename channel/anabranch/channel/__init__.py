"""The log: record schemas, append and read back, snapshots, liveness and leases."""
