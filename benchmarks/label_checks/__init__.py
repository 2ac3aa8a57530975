"""Checks of labels, tried where the truth is known: crops that copy, documents planted twice, labels moved on purpose."""
