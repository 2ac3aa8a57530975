"""Refuses queries without an answer in the corpus, by a score that is chosen and certified before the cut."""
