"""A page of docs/benchmarks: its command line, and its sections, each of which can be measured without the others."""

import argparse
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from benchmarks.checkout import ROOT

Plan = TypeVar("Plan")
Plan_contra = TypeVar("Plan_contra", contravariant=True)


class Section(Protocol[Plan_contra]):
    """A module that measures one section of a page."""

    @property
    def HEADING(self) -> str:  # noqa: N802 (a constant of the module)
        """Heading of the section."""

    def section(self, plan: Plan_contra, /) -> str:
        """Measure the section and return its Markdown without the heading.

        Args:
            plan: What this run was asked for.
        """
        ...


@dataclass(frozen=True)
class Option:
    """An option of a page's command line, repeated in the line under each heading that depends on it.

    Attributes:
        name: The flag without its dashes.
        default: Its value, whose type is that of the option.
        help: Its description.
        sections: Names of the sections that depend on it, None for all, and nothing for one that no section repeats.
    """

    name: str
    default: float | str
    help: str
    sections: Collection[str] | None = None

    def repeated(self, arguments: argparse.Namespace, section: str) -> str:
        """Format the option as given, or as an empty string where the section does not depend on it."""
        if self.sections is not None and section not in self.sections:
            return ""
        value = getattr(arguments, self.name.replace("-", "_"))
        return f" --{self.name} {shlex.quote(value) if isinstance(value, str) else format(value, '.12g')}"


@dataclass(frozen=True)
class Page(Generic[Plan]):
    """A page and what measures it.

    Attributes:
        file: Its name in docs/benchmarks.
        module: What `python -m` runs.
        title: Its first line, with the #.
        introduction: The paragraph under it.
        sections: Their modules by the names that --tables takes, in the order of the page.
        options: Of numbers and names, in the order of --help.
        needs_data: Names of the sections that read TAUGATE_DATA, None for all.
        has_sets: Whether --sets chooses data sets.
    """

    file: str
    module: str
    title: str
    introduction: str
    sections: Mapping[str, Section[Plan]]
    options: Sequence[Option] = ()
    needs_data: Collection[str] | None = None
    has_sets: bool = False

    def parser(self, description: str | None) -> argparse.ArgumentParser:
        """Build the command line, to which a page may add what is its own.

        Args:
            description: The text above the options, usually the module's docstring.
        """
        parser = argparse.ArgumentParser(
            description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )
        for option in self.options:
            parser.add_argument(f"--{option.name}", type=type(option.default), default=option.default, help=option.help)
        if self.has_sets:
            parser.add_argument("--sets", nargs="*", default=[], help="data sets, all where none is named")
        names = [*self.sections]
        parser.add_argument("--tables", nargs="*", choices=names, default=names, help="sections to measure")
        parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks" / self.file)
        return parser

    def parse(self, parser: argparse.ArgumentParser) -> argparse.Namespace:
        """Parse the command line; exits where a section is asked for whose data is not there.

        Args:
            parser: Of this page, with the options that are its own.
        """
        arguments = parser.parse_args()
        if "TAUGATE_DATA" not in os.environ and any(self._needs_data(name) for name in arguments.tables):
            sys.exit("set TAUGATE_DATA to the folder with the public data sets")
        return arguments

    def numbers(self, arguments: argparse.Namespace) -> dict[str, Any]:
        """Return the values of the options by the names of the plan's fields, which are those of the flags with underscores."""
        fields = (option.name.replace("-", "_") for option in self.options)
        return {field: getattr(arguments, field) for field in fields}

    def measure(
        self, name: str, plan: Plan, arguments: argparse.Namespace, note: Callable[[], str] | None = None
    ) -> None:
        """Measure one section and write it to the page, with the command that measures it again under its heading.

        Args:
            name: As --tables takes it.
            plan: Handed to the section.
            arguments: As parsed.
            note: Called when the section is measured, returns Markdown that follows the command.
        """
        began = time.perf_counter()
        text = self.sections[name].section(plan)
        seconds = time.perf_counter() - began
        line = stamp(self._command(name, arguments), seconds) + (f" {note()}" if note else "")
        headings = [section.HEADING for section in self.sections.values()]
        measured = {self.sections[name].HEADING: f"{line}\n\n{text}"}
        write(arguments.page, self.title, self.introduction, headings, measured)
        print(f"## {self.sections[name].HEADING}\n\n{line}\n\n{text}\n\n{name}: {seconds:.0f} s", flush=True)

    def join(self, pages: Sequence[Path], page: Path) -> None:
        """Put the sections that were measured on other machines in their places; a later page wins.

        Args:
            pages: Written by `measure` there.
            page: To write. Exits where one of them is no such page.
        """
        measured: dict[str, str] = {}
        for each in pages:
            found = _sections(each, self.title)
            if not found:
                sys.exit(f"{each}: has no section of {self.file}; name a page that --page wrote")
            measured |= found
        write(page, self.title, self.introduction, [section.HEADING for section in self.sections.values()], measured)

    def _needs_data(self, name: str) -> bool:
        return self.needs_data is None or name in self.needs_data

    def _command(self, name: str, arguments: argparse.Namespace) -> str:
        data = "TAUGATE_DATA=… " if self._needs_data(name) else ""
        options = "".join(option.repeated(arguments, name) for option in self.options)
        sets = f" --sets {shlex.join(arguments.sets)}" if self.has_sets and arguments.sets else ""
        return f"{data}python -m {self.module} --tables {name}{options}{sets}"


def data_folder() -> Path:
    """Return the folder with the public data sets, which TAUGATE_DATA names; the current one where it names none."""
    return Path(os.environ.get("TAUGATE_DATA", ".")).resolve()


def machine() -> str:
    """Describe processor, number of cores and Python."""
    processor = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    cores = len(os.sched_getaffinity(0))
    return f"{processor.split(':')[1].strip()}, {cores} cores, Python {platform.python_version()}"


def stamp(command: str, seconds: float) -> str:
    """Format the line that says by which command a section was measured, when, on which machine and in how many seconds."""
    return f"*`{command}` on {datetime.now(UTC):%Y-%m-%d}, {seconds:.0f} s; {machine()}.*"


def write(path: Path, title: str, introduction: str, order: Sequence[str], measured: Mapping[str, str]) -> None:
    """Put measured sections in their places; those that were not measured stay as they are on the page.

    Args:
        path: Of the page.
        title: Its beginning.
        introduction: Its beginning.
        order: All headings.
        measured: Markdown by heading.
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
