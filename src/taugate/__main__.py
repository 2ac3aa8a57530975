"""The process of the command `taugate`, also run by `python -m taugate`.

Ctrl-C must be handled before any slow import, so this module imports nothing slow at its top.
"""

import os
import sys

_INTERRUPTED = 130  # the exit code of shells for a command that Ctrl-C ended


def main() -> int:
    """Run the command line of this process and return its exit code."""
    if sys.platform == "win32":
        sys.stderr.write("taugate: Taugate runs on Linux and macOS; on Windows, use WSL or a container\n")
        return 2
    try:
        from taugate.cli.terminal.process import handle_interrupts, leave_when_interrupted

        handle_interrupts()
        from taugate.cli.terminal.process import READER_GONE, flush_stdout, prepare_streams

        prepare_streams()
        from taugate.cli.main import main as run_command

        code = run_command()
        if not flush_stdout():
            code = code or READER_GONE
        leave_when_interrupted()  # the work is done; only the interpreter's shutdown remains
        return code
    except OSError as error:  # the output cannot be flushed, for instance on a full disk
        _say(f"taugate: {error}\n")
        os._exit(1)
    except KeyboardInterrupt:  # in the few milliseconds before there is a handler, or outside a subcommand
        _say("taugate: interrupted\n")
        os._exit(_INTERRUPTED)


def _say(line: str) -> None:
    try:  # noqa: SIM105 (contextlib takes a millisecond)
        os.write(2, line.encode())
    except OSError:  # stderr is closed
        pass


if __name__ == "__main__":
    sys.exit(main())
