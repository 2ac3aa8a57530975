"""The program that builds the documentation site."""
