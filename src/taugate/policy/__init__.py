"""Decides which of the top-K are kept, how relevant they probably are, and whether the query has an answer."""
