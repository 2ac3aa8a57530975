"""A data set in BEIR layout."""
