"""The parser of every command: help in colours on a terminal, and a typo answered with the name that was meant."""

import argparse
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, cast


def help_formatter(plain: type[argparse.HelpFormatter]) -> type[argparse.HelpFormatter]:
    """Return the formatter that writes as `plain` does, in colours where rich-argparse is installed.

    It colours on a terminal alone, and obeys NO_COLOR and FORCE_COLOR.

    Args:
        plain: One of argparse's own.
    """
    try:
        from rich_argparse import RawDescriptionRichHelpFormatter, RichHelpFormatter
    except ModuleNotFoundError:  # it comes with the extra `calibration`
        return plain
    raw = issubclass(plain, argparse.RawDescriptionHelpFormatter)
    base: type[argparse.HelpFormatter] = RawDescriptionRichHelpFormatter if raw else RichHelpFormatter
    # Headings stay as argparse writes them, and brackets in a text are no markup.
    settings = {"group_name_formatter": str, "help_markup": False, "text_markup": False, "highlights": []}
    return cast("type[argparse.HelpFormatter]", type("HelpFormatter", (base,), settings))


class CommandParser(argparse.ArgumentParser):
    """An ArgumentParser that suggests the option or command that a misspelt one is closest to.

    Its subparsers are of the same class. The formatter is looked up when help is written, as Rich takes time to import.
    """

    def format_help(self) -> str:
        """Write the help, in colours on a terminal."""
        formatter = self.formatter_class
        if isinstance(formatter, type) and issubclass(formatter, argparse.HelpFormatter):
            self.formatter_class = help_formatter(formatter)
        return super().format_help()

    def parse_known_args(  # type: ignore[override]  # its overloads differ by the type of the namespace
        self,
        args: Sequence[str] | None = None,
        namespace: Any = None,  # noqa: ANN401 (argparse takes any object)
    ) -> tuple[Any, list[str]]:
        """Parse as argparse does, after refusing an option that neither this command nor one below it has."""
        if args is not None:
            self._refuse_unknown_options(args)
        return super().parse_known_args(args, namespace)

    def _refuse_unknown_options(self, words: Iterable[str]) -> None:
        subcommands = any(isinstance(action, argparse._SubParsersAction) for action in self._actions)
        known = [name for name in self._option_string_actions if name.startswith("--")]
        for word in words:
            if word == "--" or (subcommands and not word.startswith("-")):
                return
            name = word.split("=")[0]
            if name.startswith("--") and not any(each.startswith(name) for each in known):
                self.error(f"unrecognized arguments: {word}{suggestion(name, known)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401 (of any type argparse made)
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += suggestion(str(value), [str(choice) for choice in action.choices or ()])
            raise


def suggestion(word: str, known: Iterable[str]) -> str:
    """Write which of the known names a misspelt one is closest to, to be put behind an error's message.

    Args:
        word: As the user wrote it.
        known: The names there are. Empty where none is close.
    """
    close = get_close_matches(word, [*known], n=1)
    return f"; did you mean {close[0]}?" if close else ""
