"""A sentence-transformers encoder from PyTorch to ONNX, in float32 and int8."""
