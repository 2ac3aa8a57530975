"""Similarity thresholds that people really set, measured beside the certified one."""
