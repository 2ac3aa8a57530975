"""Recipes on cached embeddings: whitening, and a linear map for queries and documents or for queries alone."""
