"""Commands whose standard streams are pipes that nobody reads, or are closed."""

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
    """Return a command line that runs a command.

    Args:
        names: Descriptors that have no reader, such as "1,2".
    """
    return [sys.executable, "-c", _UNREAD, names, *command]


def redirected(redirection: str, command: list[str]) -> list[str]:
    """Return a command line that runs a command.

    Args:
        redirection: As of the shell, such as `2>&-`.
    """
    return ["sh", "-c", f'exec "$@" {redirection}', "sh", *command]
