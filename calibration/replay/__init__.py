"""A recorded query log through the alarms of a release: what would have alarmed, when, and what is ordinary."""
