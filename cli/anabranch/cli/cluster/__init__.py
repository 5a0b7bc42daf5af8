"""Commands that ask a running cluster: bundles, brokers, tenants, namespaces, the log."""
