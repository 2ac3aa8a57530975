"""Encodes texts as unit vectors with onnxruntime."""
