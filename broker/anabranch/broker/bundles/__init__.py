"""The cache of bundles' owners, and look-ups; the places at which bundles are cut by hand."""
