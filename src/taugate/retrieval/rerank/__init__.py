"""The second stage: scores the best candidates of a search anew."""
