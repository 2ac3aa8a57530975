"""`taugate release`: the group of its actions, and the arguments that several of them share."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from taugate.cli.terminal.command import Group, Option
from taugate.cli.terminal.process import BY, BY_HELP, act_as

_MODULES = {
    "diff": "inspect",
    "correlations": "inspect",
    "erase": "promote",
    "list": "inspect",
    "show": "inspect",
    "verify": "inspect",
    "check": "inspect",
    "history": "inspect",
    "promote": "promote",
    "rollback": "promote",
    "shadow": "promote",
    "prune": "promote",
    "sign": "promote",
    "push": "promote",
    "pull": "promote",
}


class _Actions(Group):
    """The group of all actions. Their modules, some of which load for half a second, are not needed for the list."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return an action, from the module that declares it."""
        if cmd_name in _MODULES:
            import_module(f"taugate.cli.release.{_MODULES[cmd_name]}")
        return super().get_command(ctx, cmd_name)


command = _Actions(
    "release",
    commands={name: click.Command(name) for name in _MODULES},  # replaced as modules are loaded
    help="List, compare, promote, roll back or prune releases.",
)


def action(name: str) -> Callable[[Callable[..., int]], click.Command]:
    """Return a decorator that makes an action of a function, with its docstring as help and the option --releases."""
    releases = click.option(
        "--releases", metavar="DIR", type=click.Path(path_type=Path), required=True, help="the releases directory"
    )
    return lambda function: command.command(name)(releases(function))


def by_option(function: Any) -> Any:  # noqa: ANN401 (a function, or a command made of one)
    """Read TAUGATE_BY, the name that the history records."""
    return click.option(
        "--by",
        cls=Option,
        metavar="NAME",
        expose_value=False,
        callback=lambda _context, _option, name: act_as(name),
        help=BY_HELP,
        variable=BY,
        envvar=BY,
    )(function)


def release_argument(default: str | None = None, name: str = "id") -> Callable[[Any], Any]:
    """Return a decorator that adds the argument ID, which may be left out if the help names a default."""
    text = "release id" if default is None else f"release id (default: {default})"
    return click.argument(name, metavar="ID" if default is None else "[ID]", required=default is None, help=text)
