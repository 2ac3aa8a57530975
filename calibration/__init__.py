"""The offline job: read a data set, measure, choose a threshold, write a release. Knows nothing of the service."""
