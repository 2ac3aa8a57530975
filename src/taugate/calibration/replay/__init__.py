"""A query log, replayed through the drift alarms."""
