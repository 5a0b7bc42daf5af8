"""A node's decisions on tenants and their namespaces, on their limits, and on grants to roles."""
