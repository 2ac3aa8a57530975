"""`taugate completion`: print a script that completes commands and options in a shell."""

import argparse
import sys
from pathlib import Path
from typing import Any

_SHELLS = ("bash", "zsh", "fish")
_DESCRIPTION = """\
Print the script that completes commands and options. Save it where your shell reads it, then open a new shell:

bash: taugate completion bash > ~/.local/share/bash-completion/completions/taugate
zsh:  taugate completion zsh > ~/.zfunc/_taugate, with ~/.zfunc in $fpath
fish: taugate completion fish > ~/.config/fish/completions/taugate.fish"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate completion` to its parser."""
    parser.description = _DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", choices=_SHELLS, help="shell to complete in")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the script, made from the parser of all subcommands; returns the exit code."""
    import shtab

    from taugate.cli.main import build_parser

    parser = build_parser(None)
    _complete_paths(parser, shtab.FILE)
    sys.stdout.write(f"{shtab.complete(parser, arguments.shell)}\n")
    return 0


def _complete_paths(parser: argparse.ArgumentParser, files: Any) -> None:  # noqa: ANN401 (shtab has no type for it)
    """Complete file names for path arguments of this parser and its subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subcommand in action.choices.values():
                _complete_paths(subcommand, files)
        elif action.type is Path or action.dest == "data":
            vars(action)["complete"] = files  # the attribute that shtab reads
