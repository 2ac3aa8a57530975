"""Searches within a part of the corpus: conditions on metadata, and the columns that answer them."""
