"""Compares live traffic with the calibration and raises drift alarms."""
