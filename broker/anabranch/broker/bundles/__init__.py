"""Look-ups of bundles' owners; the places at which bundles are cut by hand."""
