"""The statistics of drift: what is observed, and when it is evidence enough for an alarm. No HTTP, no threads."""
