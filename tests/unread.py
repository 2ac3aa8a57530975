"""Commands whose standard streams are closed, or pipes without a reader."""

import sys

# Gives a program a pipe without a reader in place of the descriptors named before it, and becomes the program.
_UNREAD = """
import os, sys
names, *command = sys.argv[1:]
end, broken = os.pipe()
os.close(end)
for name in names.split(","):
    os.dup2(broken, int(name))
os.execvp(command[0], command)
"""


def unread(names: str, command: list[str]) -> list[str]:
    """Return a command line that runs a command with pipes without a reader.

    Args:
        names: File descriptors of these pipes, such as "1,2".
        command: Command line.
    """
    return [sys.executable, "-c", _UNREAD, names, *command]


def redirected(redirection: str, command: list[str]) -> list[str]:
    """Return a command line that runs a command with a redirection of the shell, such as `2>&-`."""
    return ["sh", "-c", f'exec "$@" {redirection}', "sh", *command]
