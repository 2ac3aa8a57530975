"""Probabilities of relevance, fitted to the similarities of labelled queries."""
