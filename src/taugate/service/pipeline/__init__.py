"""Turns a query's text into its reply."""
