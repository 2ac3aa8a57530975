"""Estimates accuracy, loss and τ, with valid intervals, from few human judgements and many machine scores."""
