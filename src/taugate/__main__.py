"""The process of the command `taugate`, which is also `python -m taugate`.

Ctrl-C is handled before anything else is imported, so this file imports nothing at its top that takes time.
"""

import os
import sys

_INTERRUPTED = 130  # the exit code that shells give a command that Ctrl-C ended


def main() -> int:
    """Run the command line of this process, and return its exit code."""
    try:
        from taugate.cli.terminal.interrupts import handle_interrupts, leave_when_interrupted

        handle_interrupts()
        from taugate.cli.main import main as run_command

        code = run_command()
        leave_when_interrupted()  # the work is done: what is left is the interpreter's own end
        return code
    except OSError as error:  # what was printed cannot be written out, as on a full disk
        os.write(2, f"taugate: {error}\n".encode())
        os._exit(1)
    except KeyboardInterrupt:  # during the few milliseconds before there is a handler, or outside of a subcommand
        os.write(2, b"taugate: interrupted\n")
        os._exit(_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
