"""Trains the weights of an encoder."""
