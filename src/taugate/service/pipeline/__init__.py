"""A query from its text to its reply."""
