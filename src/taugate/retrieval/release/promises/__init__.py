"""The promises of a release: limits that its manifest states, each of which can be asked again on other documents."""
