"""Estimates probabilities of relevance from the similarities of labelled queries."""
