"""An encoder in C for BERT-like models, for Taugate: faster on processors with AVX2 or AVX-512."""
