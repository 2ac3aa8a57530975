"""What the queries are like: how diverse, how labelled, and what to be warned of."""
