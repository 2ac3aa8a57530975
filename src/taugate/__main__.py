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
        from taugate.cli.terminal.streams import READER_GONE, flush_stdout, prepare_streams

        prepare_streams()
        from taugate.cli.main import main as run_command

        try:
            code = run_command()
        except SystemExit as end:  # of argparse: help and the version are written, or a word was wrong
            code = end.code if isinstance(end.code, int) else int(bool(end.code))
        if not flush_stdout():
            code = code or READER_GONE
        leave_when_interrupted()  # the work is done: what is left is the interpreter's own end
        return code
    except OSError as error:  # what was printed cannot be written out, as on a full disk
        _say(f"taugate: {error}\n")
        os._exit(1)
    except KeyboardInterrupt:  # during the few milliseconds before there is a handler, or outside of a subcommand
        _say("taugate: interrupted\n")
        os._exit(_INTERRUPTED)


def _say(line: str) -> None:
    try:  # noqa: SIM105 (contextlib takes a millisecond)
        os.write(2, line.encode())
    except OSError:  # nobody reads it
        pass


if __name__ == "__main__":
    sys.exit(main())
