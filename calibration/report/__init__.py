"""The page that a release carries for people: what was measured, drawn and in words, in one file without a script."""
