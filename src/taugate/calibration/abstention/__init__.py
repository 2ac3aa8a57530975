"""Whether a query has an answer in the corpus at all: a score, chosen and certified before any result is cut."""
