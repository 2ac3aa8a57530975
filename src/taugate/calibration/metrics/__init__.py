"""Judges what a search found for labelled queries, and measures vectors as the papers do."""
