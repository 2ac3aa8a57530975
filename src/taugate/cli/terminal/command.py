"""Commands of Click with what it lacks: groups of options in help, colours, abbreviated options, early checks.

Checks the paths on a command line before anything is loaded that takes seconds. That is done before the module of a
command is loaded if the meaning of the line is certain without it, and else after Click has parsed the line. All errors
are those that the command would raise later.
"""

import copy
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import click
from click.core import ParameterSource

from taugate.cli.terminal.output import say
from taugate.data.judgements import TEST
from taugate.data.lines import read_lines
from taugate.data.queries import check_first_lines, check_folder
from taugate.errors import InputError, ReleaseError
from taugate.storage.folders import check_releases_exist

SECTION = "keys of --settings"
_Value: TypeAlias = bool | str | int | float | list[Any]
_REMOVED_IN = "0.4"


def settings_option(keys: Collection[str]) -> click.Option:
    """Return the option --settings of a command; `keys` are the names of its parameters that are keys of the file."""

    def read(context: click.Context, _: click.Parameter, path: Path | None) -> None:
        if path is not None:
            context.default_map = _values(path, _options(context.command, keys))

    return click.Option(
        ["--settings"],
        type=click.Path(path_type=Path),
        metavar="FILE.toml",
        is_eager=True,  # before the options whose defaults it has
        expose_value=False,
        callback=read,
        help="options in TOML, by their names; an option wins",
    )


def warn_of_moved(context: click.Context, keys: Collection[str]) -> None:
    """Print a notice for each given option that became a key of the file, or an environment variable."""
    for parameter in context.command.params:
        name, variable = parameter.opts[0], getattr(parameter, "variable", None)
        if context.get_parameter_source(parameter.name or "") is not ParameterSource.COMMANDLINE:
            continue
        if parameter.name in keys:
            remedy = f"write {name[2:]} = … into a file, and name it with --settings"
        elif variable is not None:
            remedy = f"set {variable}"
        else:
            continue
        say(f"warning: {name} is deprecated and will be removed in version {_REMOVED_IN}; {remedy}")


def key_rows(command: click.Command, keys: Collection[str]) -> list[tuple[str, str]]:
    """Return name and help text of each key, for --help-all."""
    return [(key, option.help or "") for key, option in _options(command, keys).items() if option.name in keys]


def _options(command: click.Command, keys: Collection[str]) -> Mapping[str, click.Option]:
    """Return the options that a file may have, by their keys; hidden ones are keys alone, or deprecated."""
    return {
        option.opts[0].lstrip("-"): option
        for option in command.params
        if isinstance(option, click.Option) and not option.is_eager and (not option.hidden or option.name in keys)
    }


def _values(path: Path, options: Mapping[str, click.Option]) -> dict[str, _Value]:
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--settings {path}: {error.strerror}; give a readable file") from error
    except ValueError as error:
        raise InputError(f"--settings {path}: not TOML in UTF-8: {error}") from error
    values: dict[str, _Value] = {}
    for key, value in read.items():
        option = options.get(key.replace("_", "-"))
        if option is None or option.name is None:
            raise InputError(f"--settings {path}: unknown key {key}; the keys are {', '.join(sorted(options))}")
        if isinstance(value, bool) is not option.is_flag or not isinstance(value, bool | str | int | float | list):
            raise InputError(f"--settings {path}: {key}: give a value as the option --{key} has it")
        # As on the command line: several values with commas, unless the option is repeated.
        values[option.name] = ",".join(map(str, value)) if isinstance(value, list) and not option.multiple else value
        _check(path, key, option, values[option.name])
    return values


def _check(path: Path, key: str, option: click.Option, value: _Value) -> None:
    try:
        option.type_cast_value(click.Context(click.Command("")), value)
    except click.UsageError as error:
        raise InputError(f"--settings {path}: {key}: {error.message}") from error


# Common options without a value, and with one, of all commands.
FLAGS = {"--dry-run", "--force", "--json", "--new-encoder", "--no-promote", "--verbose", "--yes"}
PLAIN = {
    *("--as", "--budget", "--chunks", "--collection", "--depth", "--encoder", "--from", "--holdout", "--index", "--k"),
    *("--key", "--labels", "--lexical", "--log", "--max", "--max-accuracy-drop", "--max-answered", "--max-length"),
    *("--max-loss", "--model", "--n", "--precision", "--projection", "--rate", "--release", "--releases", "--request"),
    *("--rerank", "--run", "--seed", "--split", "--stage", "--tau", "--text", "--texts", "--to", "--url"),
}
ACTIONS = {
    "release": [
        *("list", "show", "history", "verify", "check", "promote", "rollback", "shadow", "prune", "diff"),
        *("erase", "sign", "push", "pull"),
    ],
    "drift": ["replay", "baseline"],
}
_LABELLED = {"calibrate", "update", "recalibrate", "compare", "adapt"}
_RELEASES = {"update", "recalibrate", "judge", "explain", "serve", "drift"}  # which have to exist
_RUN = ("give a TREC run, or JSON Lines with query_id and results", "give the qrels of the run's queries")


def check_words(words: Sequence[str]) -> None:
    """Check the paths of a command line, the command and its arguments, if all of it is certain; errors as below."""
    command, remaining = words[0], iter(words[1:])
    if command in ACTIONS:
        action = next(remaining, "")
        if action not in ACTIONS[command]:
            return
        command = f"{command} {action}"
    arguments: list[str] = []
    options: dict[str, str] = {}
    for word in remaining:
        name, equals, value = word.partition("=")
        if name in PLAIN:
            options[name] = value if equals else next(remaining, "")
        elif not word.startswith("-"):
            arguments.append(word)
        elif word not in FLAGS:
            return
    check_paths(command, arguments, options)


def check_paths(command: str, arguments: Sequence[str], options: Mapping[str, str]) -> None:
    """Check the paths of a command."""
    paths = [Path(argument) for argument in arguments if "://" not in argument]
    if command == "run" and arguments[:1] != ["generated"] and paths:
        from taugate.data.runs.recording import read_run_queries  # loads pydantic

        read_run_queries(paths[0])
    elif command in _LABELLED | {"encode", "queries", "judge"} and paths and _is_path(arguments[0]):
        check_folder(paths[0])
        if command != "judge":
            check_first_lines(paths[0], options.get("--split", TEST) if command in _LABELLED else None)
    elif command == "traffic" and options.get("--to"):
        check_folder(Path(options["--to"]))
    group = command.partition(" ")[0]
    _check_files(group, paths, options)
    releases = options.get("--releases", "")
    if releases and "://" not in releases and not Path(releases).is_dir() and command != "release pull":
        if group == "release":
            check_releases_exist(Path(releases))
        elif group in _RELEASES:
            raise ReleaseError(
                f"{releases}: no release is current; run `taugate calibrate DATA --releases {releases}` first"
            )


def _is_path(data: str) -> bool:
    """Return whether a data set is a folder, neither a URL nor a name such as `beir:scifact`."""
    if ":" not in data:
        return True
    from taugate.data.named import named  # loads NumPy

    return "://" not in data and named(data) is None


def _check_files(command: str, paths: Sequence[Path], options: Mapping[str, str]) -> None:
    """Check sources, runs and logs."""
    if command in {"import", "quickstart"} and (missing := [path for path in paths if not path.exists()]):
        raise InputError(f"{missing[0]}: no such file or folder; name files or folders to import")
    run, log = (Path(value) if (value := options.get(name)) else None for name in ("--run", "--log"))
    for path, remedy in zip(paths if command == "calibrate-run" else filter(None, [run]), _RUN, strict=False):
        next(read_lines(path, remedy), None)
    for path in paths if command in {"traffic", "drift"} else filter(None, [log]):
        # Parts of a log have further suffixes, and there is another remedy for one that is packed.
        if path.suffix != ".gz" and not any(path.parent.glob(f"{path.name}*")):
            raise InputError(f"{path}: no such file; the service writes one if TAUGATE_QUERY_LOG names it")


class OptionGroup(NamedTuple):
    """A section of options in the help of a command, with a sentence below its title."""

    title: str
    text: str


class Option(click.Option):
    """An option that belongs to a group; None for the options without a group.

    `variable` is the environment variable that took its place; the option is hidden, and using it prints a notice.
    """

    group: OptionGroup | None = None

    def __init__(self, *arguments: Any, variable: str | None = None, **keywords: Any) -> None:  # noqa: ANN401 (Click's)
        super().__init__(*arguments, **keywords)
        self.variable = variable
        self.hidden |= variable is not None


class Argument(click.Argument):
    """An argument, which belongs to no group: help shows it in the usage line alone."""

    group: OptionGroup | None = None


class _Formatter(click.HelpFormatter):
    """Writes titles and names in colours, which Click strips if the output is not a terminal."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, click.style("usage: ", bold=True) if prefix is None else prefix)

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':>{self.current_indent}}{click.style(f'{heading.lower()}:', bold=True)}\n")

    def write_dl(self, rows: Any, col_max: int = 26, col_spacing: int = 2) -> None:  # noqa: ANN401 (Click's own types)
        super().write_dl([(click.style(name, fg="cyan"), text) for name, text in rows], col_max, col_spacing)


class _Context(click.Context):
    formatter_class = _Formatter


class Command(click.Command):
    """A command whose function gets the given options as keywords and returns the exit code.

    Attributes:
        common: Names of the options that --help shows, if it does not show all; --help-all does.
        keys: Names of the parameters that are keys of the file of --settings; as options they are deprecated.
    """

    context_class = _Context

    def __init__(
        self,
        *arguments: Any,  # noqa: ANN401 (those of Click)
        common: Collection[str] | None = None,
        keys: Collection[str] = (),
        **keywords: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(*arguments, **keywords)
        self.common, self.keys = common, keys
        if keys:
            self.common = [parameter.name or "" for parameter in self.params] if common is None else common
            for parameter in self.params:
                if isinstance(parameter, click.Option):
                    parameter.hidden |= parameter.name in keys
            self.params.append(settings_option(keys))
        if self.common is not None:
            text = "show every option and exit"
            all_options = Option(
                ["--help-all"],
                hidden=True,
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_all_options,
                help=text,
            )
            self.params.append(all_options)

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return the first line of the help, which Click would cut at some width."""
        return (self.short_help or self.help or "").partition("\n")[0].removesuffix(".")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as Click does, after completing abbreviated options such as --rel for --releases."""
        parameters = self.get_params(ctx)
        names = {name: option.required for option in parameters for name in option.opts if name.startswith("--")}
        end = args.index("--") if "--" in args else len(args)
        remaining = super().parse_args(ctx, [*(_completed(word, names) for word in args[:end]), *args[end:]])
        warn_of_moved(ctx, self.keys)
        return remaining

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 (Click's own type)
        """Run the command, whose function loads the rest of what it needs, after a check of the paths."""
        arguments: list[str] = []
        for parameter in self.params:
            value = ctx.params.get(parameter.name or "")
            if isinstance(parameter, click.Argument) and value is not None:
                arguments += map(str, value) if isinstance(value, tuple) else [str(value)]
        values = {name: ctx.params.get(parameter.name or "") for parameter in self.params for name in parameter.opts}
        options = {
            name: str(value[-1] if isinstance(value, tuple) else value)
            for name, value in values.items()
            if value is not None and value != ()
        }
        check_paths(" ".join(ctx.command_path.split()[1:]), arguments, options)
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group of options."""
        sections: dict[OptionGroup | None, list[tuple[str, str]]] = {None: []}
        hidden = 0
        for parameter in self.get_params(ctx):
            row = None if isinstance(parameter, click.Argument) else parameter.get_help_record(ctx)
            if self.common is not None and not parameter.is_eager and parameter.name not in self.common:
                hidden += row is not None
            elif row is not None:
                sections.setdefault(getattr(parameter, "group", None), []).append(row)
        for group, rows in sections.items():
            with formatter.section("options" if group is None else group.title):
                if group is not None:
                    formatter.write_text(group.text)
                    formatter.write_paragraph()
                formatter.write_dl(rows)
        if hidden or (self.keys and self.common is not None):
            more = f"{hidden} more options" if hidden else "keys of --settings"
            formatter.write_paragraph()
            formatter.write_text(f"{more}: {ctx.command_path} --help-all")
            return
        variables = [(name, option.help or "") for option in self.params if (name := getattr(option, "variable", None))]
        for title, rows in ((SECTION, key_rows(self, self.keys)), ("environment variables", variables)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class Group(click.Group):
    """A command with actions, listed in the order of their declaration."""

    context_class = _Context
    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the actions, which Click would sort."""
        return [*self.commands]


def _completed(word: str, names: Mapping[str, bool]) -> str:
    """Return a word of the command line with an abbreviated option in full; a required one takes precedence."""
    name, equals, value = word.partition("=")
    matches = [full for full in names if full.startswith(name)] if len(name) > 2 and name.startswith("--") else []
    if len(matches) > 1 and name not in names:
        matches = [full for full in matches if names[full]]
    return f"{matches[0]}{equals}{value}" if len(matches) == 1 else word


def _show_all_options(ctx: click.Context, _: click.Parameter, requested: bool) -> None:
    if requested:
        every = copy.copy(ctx.command)
        vars(every)["common"] = None
        click.echo(every.get_help(ctx), color=ctx.color)
        ctx.exit()
