"""Judgements of who may do what, how soon a grant counts, and what TLS and tokens cost."""
