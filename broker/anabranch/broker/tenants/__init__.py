"""What a node decides of tenants and their namespaces, of their limits, and of grants to roles."""
