"""The online service: loads a release and answers searches."""
