"""Texts to unit vectors, with onnxruntime."""
