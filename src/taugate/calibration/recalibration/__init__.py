"""The whole way from newer data to a release in service, in steps that can be resumed."""
