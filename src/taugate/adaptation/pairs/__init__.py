"""Training pairs: queries with documents that answer them, and documents that do not."""
