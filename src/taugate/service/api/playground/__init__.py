"""The playground: a web page to search, move the threshold and judge results; `taugate judge` uses it too."""
