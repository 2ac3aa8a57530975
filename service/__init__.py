"""The online service: HTTP in front of a release. Knows nothing of calibration, and imports no PyTorch."""
