"""Tests of estimates from few labels and many scores."""
