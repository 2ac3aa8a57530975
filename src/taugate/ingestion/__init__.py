"""Data sets, from files to documents, queries and qrels."""
