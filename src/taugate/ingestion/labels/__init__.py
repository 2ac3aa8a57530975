"""Judgements by people: judges of a data set, or users of the running service."""
