"""The command `taugate`: subcommands and the names of their options."""
