"""Queries made from the documents themselves, for a corpus that nobody has labelled."""
