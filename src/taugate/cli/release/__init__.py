"""The subcommand `taugate release`: one file for each group of its actions."""
