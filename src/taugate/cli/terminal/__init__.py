"""Parsers and lines of text that all subcommands share."""
