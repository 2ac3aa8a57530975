"""Data sets in the BEIR layout, their chunks, queries and judgements, and runs of other retrievers."""
