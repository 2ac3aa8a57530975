"""Replay of a query log through the drift alarms."""
