"""The description of the REST interface: OpenAPI, and a page made of it."""
