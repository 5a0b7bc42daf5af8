"""The routes of tenants and namespaces, of their limits, and of grants to roles."""
