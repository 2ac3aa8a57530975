"""Runs: the results that another retriever gave to many queries, with their scores."""
