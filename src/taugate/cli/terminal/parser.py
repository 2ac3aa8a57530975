"""The parser of every command: help in colours on a terminal, and a suggestion for a misspelt name."""

import argparse
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, cast


def help_formatter(plain: type[argparse.HelpFormatter]) -> type[argparse.HelpFormatter]:
    """Return a formatter that writes as `plain` does, in colours if rich-argparse is installed.

    It uses colours on a terminal only, and obeys NO_COLOR and FORCE_COLOR.

    Args:
        plain: A formatter class of argparse.
    """
    try:
        from rich_argparse import RawDescriptionRichHelpFormatter, RichHelpFormatter
    except ModuleNotFoundError:  # it comes with the extra `calibration`
        return plain
    raw = issubclass(plain, argparse.RawDescriptionHelpFormatter)
    base: type[argparse.HelpFormatter] = RawDescriptionRichHelpFormatter if raw else RichHelpFormatter
    # Headings stay as argparse writes them, and brackets in a text are not markup.
    settings = {"group_name_formatter": str, "help_markup": False, "text_markup": False, "highlights": []}
    return cast("type[argparse.HelpFormatter]", type("HelpFormatter", (base,), settings))


class CommandParser(argparse.ArgumentParser):
    """An ArgumentParser that suggests the closest name for a misspelt option or command.

    Its subparsers are of the same class. The formatter is looked up when help is written, because importing Rich takes
    time.
    """

    common: frozenset[str] | None = None  # the options that --help shows; None for all of them

    def format_help(self) -> str:
        """Return the help, in colours on a terminal."""
        formatter = self.formatter_class
        if isinstance(formatter, type) and issubclass(formatter, argparse.HelpFormatter):
            self.formatter_class = help_formatter(formatter)
        if self.common is None:
            return super().format_help()
        return self._format_common_help(self.common)

    def _format_common_help(self, common: frozenset[str]) -> str:
        """Return the help without the options that only --help-all shows."""
        options = [action for action in self._actions if action.option_strings]
        hidden = [action for action in options if action.dest not in common]
        texts, groups, epilog = [action.help for action in hidden], self._action_groups, self.epilog
        shown = {id(action) for action in self._actions} - {id(action) for action in hidden}
        try:
            for action in hidden:
                action.help = argparse.SUPPRESS
            self._action_groups = [
                group for group in groups if any(id(action) in shown for action in group._group_actions)
            ]
            self.epilog = f"{len(hidden)} more options: {self.prog} --help-all"
            return super().format_help()
        finally:
            self._action_groups, self.epilog = groups, epilog
            for action, text in zip(hidden, texts, strict=True):
                action.help = text

    def parse_known_args(  # type: ignore[override]  # its overloads differ by the type of the namespace
        self,
        args: Sequence[str] | None = None,
        namespace: Any = None,  # noqa: ANN401 (argparse takes any object)
    ) -> tuple[Any, list[str]]:
        """Parse as argparse does, but first refuse unknown options, with a suggestion.

        Options after a subcommand are left to its own parser.
        """
        if args is not None:
            self._refuse_unknown_options(args)
        return super().parse_known_args(args, namespace)

    def _refuse_unknown_options(self, words: Iterable[str]) -> None:
        subcommands = any(isinstance(action, argparse._SubParsersAction) for action in self._actions)
        names = [name for name in self._option_string_actions if name.startswith("--")]
        for word in words:
            if word == "--" or (subcommands and not word.startswith("-")):
                return
            name = word.split("=")[0]
            if name.startswith("--") and not any(option.startswith(name) for option in names):
                self.error(f"unrecognized arguments: {word}{suggestion(name, names)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401 (of any type argparse made)
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += suggestion(str(value), [str(choice) for choice in action.choices or ()])
            raise


class _HelpAllAction(argparse.Action):
    """Print the help with every option, and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        cast("CommandParser", parser).common = None
        parser.print_help()
        parser.exit()


def show_in_help(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Limit --help to some of the options, and add --help-all, which shows all of them.

    Args:
        parser: A CommandParser. Any other parser keeps its whole help.
        names: Destinations of the options to show.
    """
    if isinstance(parser, CommandParser):
        parser.common = frozenset({*names, "help", "help_all"})
        parser.add_argument("--help-all", action=_HelpAllAction, nargs=0, help="show every option and exit")


def suggestion(word: str, names: Iterable[str]) -> str:
    """Return a suggestion to append to an error message, such as "; did you mean --seed?", or "" if no name is close.

    Args:
        word: The misspelt name.
        names: The valid names.
    """
    close = get_close_matches(word, [*names], n=1)
    return f"; did you mean {close[0]}?" if close else ""
