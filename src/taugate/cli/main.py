"""The command `taugate`: it runs one subcommand, and turns errors into exit codes.

Exit codes: 0 done, 2 bad input or usage, 3 no safe threshold, 4 not promoted or not accepted, 5 no threshold can be
certified with these documents, 130 interrupted, 141 stdout was closed early, 1 any other error.
"""

import errno
import os
import re
import signal
import sys
from importlib import import_module
from importlib.metadata import requires
from importlib.util import find_spec

import click

from taugate import plugins
from taugate.cli.terminal.command import Group, check_words
from taugate.cli.terminal.output import in_colour, say
from taugate.cli.terminal.process import INTERRUPTED, MESSAGE, READER_GONE, interrupted, reader_is_gone
from taugate.errors import TaugateError
from taugate.storage.folders import set_missing_home

# The subcommands with their help texts, in the groups of the help. A module named after each, with `_` for `-`, or that
# of _MODULES, has its command, and is loaded only to run it; a command without a module is a plug-in's.
_GROUPS = {
    "start": {
        "quickstart": "calibrate on a sample data set or on your files, and serve it",
        "import": "make a data set from files, such as PDF, web pages and tables",
        "queries": "make queries from the documents of an unlabelled corpus",
        "judge": "judge results of sampled queries, to label them for calibration",
        "completion": "print the completion script of a shell",
    },
    "measure": {
        "calibrate": "measure a data set, choose the threshold, promote a release",
        "run": "send queries to your own search engine, and write its results",
        "calibrate-run": "choose a threshold for the scores of your own retriever",
        "compare": "compare encoders on a data set, and choose one",
        "recalibrate": "release newer data: check or choose the threshold, promote",
        "adapt": "adapt an encoder to a data set, if that makes it better",
        "encode": "encode a corpus into shards, with several workers",
    },
    "serve": {
        "serve": "serve the current release over HTTP",
        "release": "list, compare, promote, roll back or prune releases",
        "key": "create and remove API keys",
        "settings": "show the effective settings and their sources",
    },
    "watch": {
        "explain": "explain why a document is, or is not, among the results",
        "drift": "detect drift in recorded queries",
        "log": "check a chained query log",
        "traffic": "make labelled queries from user feedback",
    },
}
_MODULES = {"calibrate-run": "calibrate", "settings": "serve", "update": "recalibrate"}
_DEPRECATED = {"update": "a deprecated name of recalibrate"}
COMMANDS = {name: text for group in _GROUPS.values() for name, text in group.items()} | _DEPRECATED
_EXAMPLES = {
    "taugate quickstart": "try it on a sample",
    "taugate calibrate DATA --releases DIR --max-loss 0.02": "limit the loss to 2 %",
    "taugate serve --releases DIR": "search over HTTP",
}
COMPLETE = "_TAUGATE_COMPLETE"  # the variable by which a shell's completion script asks for completions
# Distribution of each module whose name differs from it.
_PACKAGE_OF = {
    "bs4": "beautifulsoup4",
    "google": "protobuf",
    "markdown_it": "markdown-it-py",
    "markupsafe": "jinja2",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


def load_command(name: str) -> click.Command:
    """Import the module of a subcommand and return its command."""
    attribute = name.replace("-", "_")
    module = f"taugate.cli.{_MODULES.get(name, attribute)}"
    if not find_spec(module):
        command: click.Command = plugins.load_one("commands", name)
        return command
    loaded = import_module(module)
    command = getattr(loaded, f"{attribute}_command") if name in _MODULES else loaded.command
    return command


class _Program(Group):
    """The group of all subcommands. Their names and help texts are known without their modules."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a placeholder, also for a command that only a plug-in knows."""
        return super().get_command(ctx, cmd_name) or {
            name: click.Command(name) for name in plugins.provided("commands")
        }.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Replace the placeholder of the requested subcommand by the command that its module has."""
        name, _, words = super().resolve_command(ctx, args)
        return name, load_command(name) if name else None, words

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group of subcommands, and the examples."""
        others = {
            name: f"a command of {point.dist.name if point.dist else point.value}"
            for name, point in plugins.provided("commands").items()
            if name not in COMMANDS
        }
        for title, rows in (*_GROUPS.items(), ("plug-ins", others), ("examples", _EXAMPLES)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl([*rows.items()], col_max=60)


program = _Program(
    "taugate",
    commands={
        name: click.Command(name, short_help=text, hidden=name in _DEPRECATED) for name, text in COMMANDS.items()
    },
    help="Retrieval with a calibrated similarity threshold.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
click.version_option(package_name="taugate", message="%(prog)s %(version)s")(program)


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand, by default that of this process's command line, and return its exit code."""
    # On SIGTERM, a calibration removes its temporary files, as after Ctrl-C. The service has its own handlers.
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
    set_missing_home()
    try:
        return _run([*(sys.argv[1:] if arguments is None else arguments)] or ["--help"])
    except click.exceptions.Exit as end:  # after --help and --version
        return end.exit_code
    except click.UsageError as error:
        path = "taugate" if error.ctx is None else error.ctx.command_path
        say(f"{path}: {' '.join(error.format_message().split())}")
        return error.exit_code
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (unknown errors are raised again)
        if interrupted() or isinstance(error, KeyboardInterrupt):
            say(MESSAGE)
            return INTERRUPTED
        return _explain(error)


def _run(words: list[str]) -> int:
    if instruction := os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(program, {}, "taugate", COMPLETE, instruction)
    if words[0] in COMMANDS:
        check_words(words)
    # Not program.main(), which has messages and exit codes of its own for interrupts and closed streams.
    # A copy, because click takes words away from its list; reports name the command that made them.
    with program.make_context("taugate", [*words], color=in_colour(sys.stdout), obj=words) as context:
        return int(program.invoke(context))


def _explain(error: Exception) -> int:
    """Print the error as one line, and return the exit code; raise it again if it is a bug of Taugate."""
    match error:
        case FileNotFoundError() if "No usable temporary directory" in str(error):  # the message of `tempfile`
            message, code = f"{error.strerror}: all are full or not writable; set TMPDIR to a folder with free space", 1
        case BrokenPipeError() if reader_is_gone():
            return READER_GONE
        # The input is not at fault.
        case OSError(errno=errno.ENOSPC | errno.EDQUOT) if error.filename is not None:
            message, code = f"{error.filename}: {error.strerror}; free some space there, and repeat the command", 1
        case OSError():
            message, code = str(error), 1
        case TaugateError():
            message, code = str(error), error.exit_code
        case ModuleNotFoundError() if missing := _missing_package(error.name):
            package, remedy = missing
            message, code = f"{package} is not installed, which this command needs: pip install {remedy}", 2
        case _:
            raise error
    say(f"taugate: {message}")
    return code


def _missing_package(module: str | None) -> tuple[str, str] | None:
    """Return the distribution of a module and what pip installs it with, or None if it is of no extra."""
    package = (module or "").split(".")[0]
    package = _PACKAGE_OF.get(package, package.replace("_", "-"))
    for distribution in plugins.distributions():
        for requirement in requires(distribution) or ():
            name, _, condition = requirement.partition(";")
            if re.split(r"[\s<>=!~\[(]", name, maxsplit=1)[0].lower() == package and "extra ==" in condition:
                extra = condition.split("extra ==")[1].strip(" \"'")
                return package, f"'{distribution}[{extra}]'"
    return None
