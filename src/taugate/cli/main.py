"""The command `taugate`: it parses the arguments, runs one subcommand, and turns errors into exit codes.

Exit codes: 0 done, 2 bad input or usage, 3 no safe threshold, 4 not promoted or not accepted, 130 interrupted,
141 stdout was closed early, 1 any other error.
"""

import argparse
import re
import signal
import sys
from importlib import import_module
from importlib.metadata import requires

from taugate.cli.terminal.interrupts import INTERRUPTED, MESSAGE, interrupted
from taugate.cli.terminal.output import say
from taugate.cli.terminal.parser import CommandParser
from taugate.cli.terminal.streams import READER_GONE, reader_is_gone
from taugate.errors import EngineUnavailable, NotPromoted, StoreError, TaugateError
from taugate.storage.folders import set_missing_home

# The help text of each subcommand, and the module that adds its arguments, loaded only for that subcommand.
COMMANDS = {
    "quickstart": ("calibrate on a sample data set or on your files, and serve it", "taugate.cli.quickstart"),
    "calibrate": ("measure a labelled data set, choose the threshold, promote a release", "taugate.cli.calibrate"),
    "update": ("make a release of a newer corpus, and promote it if the threshold still holds", "taugate.cli.update"),
    "recalibrate": (
        "calibrate on newer data as before, compare, try on live traffic, promote",
        "taugate.cli.recalibrate",
    ),
    "import": (
        "make a data set from a folder of files: texts, web pages, PDF, office files, emails, tables, source code",
        "taugate.cli.import_data",
    ),
    "queries": ("make queries from the documents of an unlabelled corpus", "taugate.cli.queries"),
    "traffic": ("make labelled queries from user feedback", "taugate.cli.traffic"),
    "judge": ("judge results of sampled queries, to label them for calibration", "taugate.cli.judge"),
    "adapt": ("adapt an encoder to a data set, and measure whether it is better", "taugate.cli.adapt"),
    "encode": ("encode a corpus into shards, with several workers", "taugate.cli.encode"),
    "serve": ("serve the current release over HTTP", "taugate.cli.serve"),
    "explain": ("explain why a document is, or is not, among the results of a query", "taugate.cli.explain"),
    "settings": ("show the effective settings and their sources", "taugate.cli.settings"),
    "release": ("list, compare, promote, roll back or prune releases", "taugate.cli.release.command"),
    "drift": ("detect drift in recorded queries", "taugate.cli.drift"),
    "key": ("create and remove API keys", "taugate.cli.key"),
    "completion": ("print the completion script of a shell", "taugate.cli.completion"),
}
# Distribution of each module whose name differs from it.
_PACKAGE_OF = {
    "bs4": "beautifulsoup4",
    "google": "protobuf",
    "markdown_it": "markdown-it-py",
    "markupsafe": "jinja2",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand and return its exit code.

    Args:
        arguments: The command line without the program's name, or None for that of this process.
    """
    words = sys.argv[1:] if arguments is None else arguments
    # On SIGTERM, a calibration removes its temporary files, as after Ctrl-C. The service has its own handlers.
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
    set_missing_home()
    try:
        parsed = build_parser(words).parse_args(words)
        return int(parsed.run(parsed))
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (unknown errors are raised again)
        if interrupted() or isinstance(error, KeyboardInterrupt):
            say(MESSAGE)
            return INTERRUPTED
        return _explain(error)


def _explain(error: Exception) -> int:
    """Print the error as one line, and return the exit code; raise it again if it is a bug of Taugate."""
    match error:
        case FileNotFoundError() if "No usable temporary directory" in str(error):  # the message of `tempfile`
            message, code = f"{error.strerror}: all are full or not writable; set TMPDIR to a folder with free space", 1
        case BrokenPipeError() if reader_is_gone():
            return READER_GONE
        case StoreError() | EngineUnavailable() | OSError():  # the input is not at fault
            message, code = str(error), 1
        case NotPromoted():
            message, code = str(error), 4
        case TaugateError():
            message, code = str(error), 2
        case ModuleNotFoundError() if missing := _missing_package(error.name):
            package, extra = missing
            message, code = f"{package} is not installed, which this command needs: pip install 'taugate[{extra}]'", 2
        case _:
            raise error
    say(f"taugate: {message}")
    return code


def build_parser(words: list[str] | None) -> argparse.ArgumentParser:
    """Build the parser: every subcommand by name, and the arguments of the requested one.

    Args:
        words: The command line, or None for the arguments of every subcommand.
    """
    parser = CommandParser(prog="taugate", description="Retrieval with a calibrated similarity threshold.")
    parser.add_argument("--version", action=_VersionAction, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    requested = None if words is None else next((word for word in words if not word.startswith("-")), "")
    for name, (text, module) in COMMANDS.items():
        subcommand = commands.add_parser(name, help=text)
        if requested in {None, name}:
            import_module(module).add_arguments(subcommand)
    return parser


class _VersionAction(argparse.Action):
    """Look up the version only on request."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        sys.stdout.write(f"taugate {version('taugate')}\n")
        parser.exit()


def _missing_package(module: str | None) -> tuple[str, str] | None:
    """Return the distribution of a module and the extra that installs it, or None if no extra does."""
    package = (module or "").split(".")[0]
    package = _PACKAGE_OF.get(package, package.replace("_", "-"))
    for requirement in requires("taugate") or ():
        name, _, condition = requirement.partition(";")
        if re.split(r"[\s<>=!~\[(]", name, maxsplit=1)[0].lower() == package and "extra ==" in condition:
            return package, condition.split("extra ==")[1].strip(" \"'")
    return None
