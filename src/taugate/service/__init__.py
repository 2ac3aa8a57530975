"""The online service, which loads a release and serves searches."""
