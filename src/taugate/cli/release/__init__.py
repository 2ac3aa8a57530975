"""`taugate release`: its actions, one file for those that belong together."""

from taugate.cli.release.action import command

__all__ = ["command"]
