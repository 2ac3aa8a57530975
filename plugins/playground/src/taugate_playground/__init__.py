"""A page to search and to try thresholds, for Taugate."""
