"""A release of a newer corpus, with the threshold of the current release."""
