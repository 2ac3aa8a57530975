"""Fits models of relevance, and measures how well their probabilities hold."""
