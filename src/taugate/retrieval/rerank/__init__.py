"""The second stage: reranks the best candidates of a search."""
