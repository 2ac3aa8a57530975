"""A sentence-transformers encoder from PyTorch to ONNX, in float32, bfloat16 and int8."""
