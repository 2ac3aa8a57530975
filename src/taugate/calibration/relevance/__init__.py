"""Fits models of relevance on the labelled queries of a corpus or a run, and finds questions without an answer."""
