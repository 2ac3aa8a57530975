"""Is this query set worth calibrating on? How many independent queries it holds, of how many topics, how labelled."""
