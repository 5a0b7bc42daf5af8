"""A node's part in scalable topics: it controls those whose bundles it owns, and shows them all."""
