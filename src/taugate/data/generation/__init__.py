"""Queries made from the documents themselves, for an unlabelled corpus."""
