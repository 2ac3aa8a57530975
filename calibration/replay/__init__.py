"""A recorded query log through the detector of the service: what would have alarmed, and when."""
