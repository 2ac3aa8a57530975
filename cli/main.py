"""The command `taugate`: it parses the arguments, runs one subcommand, and turns errors into exit codes.

Exit codes: 0 done, 2 bad input or usage, 3 no safe threshold, 4 a release that is not promoted, 1 anything else.
"""

import argparse
import signal
from importlib.metadata import version

from taugate.cli import calibrate, drift, import_data, key, quickstart, serve
from taugate.cli.release import command as release
from taugate.cli.terminal.output import say
from taugate.errors import NotPromoted, StoreError, TaugateError


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand and return its exit code.

    arguments: the command line without the program's name, None for that of this process.
    """
    parser = argparse.ArgumentParser(prog="taugate", description="Retrieval with a calibrated similarity threshold.")
    parser.add_argument("--version", action="version", version=f"taugate {version('taugate')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for subcommand in (quickstart, import_data, calibrate, release, drift, serve, key):
        subcommand.add_parser(commands)
    parsed = parser.parse_args(arguments)
    # A calibration that is told to end clears away what it spooled, as after Ctrl-C. The service has its own handlers.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return int(parsed.run(parsed))
    except (StoreError, OSError) as error:  # nothing is wrong with the input
        say(f"taugate: {error}")
        return 1
    except NotPromoted as error:
        say(f"taugate: {error}")
        return 4
    except TaugateError as error:
        say(f"taugate: {error}")
        return 2
    except KeyboardInterrupt:
        say("taugate: interrupted")
        return 1
