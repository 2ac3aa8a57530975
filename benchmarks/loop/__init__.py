"""The loop: a corpus changes, drift alarms, a better release is calibrated, tried and promoted, the alarm ends."""
