"""The playground: a page on which people search, move the threshold, and judge; `taugate judge --web` shows it too."""
