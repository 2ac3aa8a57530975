"""A page of benchmarks/results: its command line, and its sections, each of which can be measured without the others."""

import argparse
import os
import shlex
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from benchmarks.checkout import ROOT
from benchmarks.results import RESULTS, save, stamp

Plan = TypeVar("Plan")
Plan_contra = TypeVar("Plan_contra", contravariant=True)


class Section(Protocol[Plan_contra]):
    """A module that measures one section of a page."""

    @property
    def HEADING(self) -> str:  # noqa: N802 (a constant of the module)
        """Heading of the section."""

    def section(self, plan: Plan_contra, /) -> str:
        """Measure the section with the settings of this run, and return its Markdown without the heading."""
        ...


@dataclass(frozen=True)
class Option:
    """An option of a page's command line, repeated in the line under each heading that depends on it.

    Attributes:
        name: Flag without its dashes.
        default: Default value; its type is the type of the option.
        sections: Names of the sections that depend on the option, None for all.
    """

    name: str
    default: float | str
    help: str
    sections: Collection[str] | None = None

    def repeated(self, arguments: argparse.Namespace, section: str) -> str:
        """Format the option as given, or as an empty string if the section does not depend on it."""
        if self.sections is not None and section not in self.sections:
            return ""
        value = getattr(arguments, self.name.replace("-", "_"))
        return f" --{self.name} {shlex.quote(value) if isinstance(value, str) else format(value, '.12g')}"


@dataclass(frozen=True)
class Page(Generic[Plan]):
    """A page and the modules that measure it.

    Attributes:
        file: Name of the page in its folder.
        module: Module that `python -m` runs.
        title: First line, with the #.
        introduction: Paragraphs under the title.
        sections: Modules by the names that --tables takes, in the order of the page.
        options: Further options, in the order of --help.
        needs_data: Names of the sections that read TAUGATE_DATA, None for all.
        has_sets: Whether --sets chooses data sets.
        folder: Folder of the page.
    """

    file: str
    module: str
    title: str
    introduction: str
    sections: Mapping[str, Section[Plan]]
    options: Sequence[Option] = ()
    needs_data: Collection[str] | None = None
    has_sets: bool = False
    folder: str = "benchmarks/results"

    @property
    def path(self) -> Path:
        """Path of the page."""
        return ROOT / self.folder / self.file

    def parser(self, description: str | None) -> argparse.ArgumentParser:
        """Build the command line; a page may add options of its own. `description` is usually the module's docstring."""
        parser = argparse.ArgumentParser(
            description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )
        for option in self.options:
            parser.add_argument(f"--{option.name}", type=type(option.default), default=option.default, help=option.help)
        if self.has_sets:
            parser.add_argument("--sets", nargs="*", default=[], help="data sets (default: all)")
        names = [*self.sections]
        parser.add_argument("--tables", nargs="*", choices=names, default=names, help="sections to measure")
        parser.add_argument("--page", type=Path, default=self.path)
        parser.add_argument("--json", type=Path, default=RESULTS / self.file.replace(".md", ".json"))
        return parser

    def parse(self, parser: argparse.ArgumentParser) -> argparse.Namespace:
        """Parse the command line; exits if a requested section needs TAUGATE_DATA and that is not set."""
        arguments = parser.parse_args()
        if "TAUGATE_DATA" not in os.environ and any(self._needs_data(name) for name in arguments.tables):
            sys.exit("set TAUGATE_DATA to the folder with the public data sets")
        return arguments

    def numbers(self, arguments: argparse.Namespace) -> dict[str, Any]:
        """Return the values of the options by the names of the plan's fields: the flags with underscores."""
        fields = (option.name.replace("-", "_") for option in self.options)
        return {field: getattr(arguments, field) for field in fields}

    def measure(
        self, name: str, plan: Plan, arguments: argparse.Namespace, note: Callable[[], str] | None = None
    ) -> None:
        """Measure one section, and write it to the page and to the JSON file.

        Args:
            name: Section, as --tables takes it.
            plan: Passed to the section.
            arguments: Parsed command line.
            note: Called after the measurement; its Markdown follows the command under the heading.
        """
        began = time.perf_counter()
        text = self.sections[name].section(plan)
        seconds = time.perf_counter() - began
        command, heading = self._command(name, arguments), self.sections[name].HEADING
        line = stamp(command, seconds) + (f" {note()}" if note else "")
        headings = [section.HEADING for section in self.sections.values()]
        write(arguments.page, self.title, self.introduction, headings, {heading: f"{line}\n\n{text}"})
        save(arguments.json, heading, command, seconds, text)
        print(f"## {heading}\n\n{line}\n\n{text}\n\n{name}: {seconds:.0f} s", flush=True)

    def _needs_data(self, name: str) -> bool:
        return self.needs_data is None or name in self.needs_data

    def _command(self, name: str, arguments: argparse.Namespace) -> str:
        data = "TAUGATE_DATA=… " if self._needs_data(name) else ""
        options = "".join(option.repeated(arguments, name) for option in self.options)
        sets = f" --sets {shlex.join(arguments.sets)}" if self.has_sets and arguments.sets else ""
        return f"{data}python -m {self.module} --tables {name}{options}{sets}"


def data_folder() -> Path:
    """Return the folder with the public data sets: TAUGATE_DATA, or the current folder if that is not set."""
    return Path(os.environ.get("TAUGATE_DATA", ".")).resolve()


def write(path: Path, title: str, introduction: str, order: Sequence[str], measured: Mapping[str, str]) -> None:
    """Write a page: title, introduction, and its sections in `order`, as headings.

    `measured` has the Markdown of the new sections by heading; the others are kept as the page has them.
    """
    sections = _sections(path, title) | dict(measured)
    body = [f"## {heading}\n\n{sections[heading].strip()}\n" for heading in order if heading in sections]
    path.write_text(f"{title}\n\n{introduction}\n\n" + "\n".join(body), encoding="utf-8")


def _sections(path: Path, title: str) -> dict[str, str]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if not text.startswith(title):
        return {}
    parts = (part.partition("\n") for part in text.split("\n## ")[1:])
    return {heading: body for heading, _, body in parts}
