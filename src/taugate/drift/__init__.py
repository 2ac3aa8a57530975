"""The statistics of drift: what is observed, and how much evidence raises an alarm. No HTTP, no threads."""
