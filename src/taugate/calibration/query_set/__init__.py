"""Measures the diversity and the labels of a query set, and warns of defects."""
