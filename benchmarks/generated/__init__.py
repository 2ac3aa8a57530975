"""Queries cropped from documents, beside the queries that people asked about the same documents."""
