"""Data sets in the BEIR layout."""
