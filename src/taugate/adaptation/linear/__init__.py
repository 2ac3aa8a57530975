"""Recipes on cached embeddings: whitening, and one linear map for queries and documents, or for queries alone."""
