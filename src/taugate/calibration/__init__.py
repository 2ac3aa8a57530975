"""The offline job: measures, chooses and certifies a threshold, and writes a release."""
