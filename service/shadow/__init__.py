"""A second release that answers a sample of the traffic beside the one in service, and whose answers nobody sees."""
