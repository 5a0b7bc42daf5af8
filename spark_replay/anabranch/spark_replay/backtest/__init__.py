"""The back-test: the effects of an auto-scale policy under loads of the past."""
