"""A second release that answers the same queries, unseen."""
