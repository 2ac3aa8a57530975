"""A second release that answers the same queries without being shown."""
