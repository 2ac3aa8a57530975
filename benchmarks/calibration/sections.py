"""The command line of a page of benchmarks: which sections to measure, on which data sets, with how many splits."""

import argparse
import os
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import page
from bench import Bench
from threadpoolctl import threadpool_limits
from workers import Workers

ROOT = Path(__file__).resolve().parents[2]


class Section(Protocol):
    """A module that measures one section of a page."""

    HEADING: str

    def section(self, bench: Bench) -> str:
        """The section as Markdown, without its heading."""
        ...


@dataclass(frozen=True)
class Page:
    """A page of docs/benchmarks. script: of the repository, that measures it; splits: how many by default."""

    name: str
    script: str
    title: str
    introduction: str
    sections: Mapping[str, Section]
    splits: int

    def measure(self, description: str | None) -> None:
        """Measure the sections asked for on the command line, and write each to the page as soon as it is there."""
        arguments = self._arguments(description)
        if "TAUGATE_DATA" not in os.environ:
            sys.exit("set TAUGATE_DATA to the folder with the public data sets")
        data = Path(os.environ["TAUGATE_DATA"]).resolve()
        headings = [module.HEADING for module in self.sections.values()]
        with threadpool_limits(limits=1), Workers() as workers:
            bench = Bench(data, frozenset(arguments.sets), arguments.splits, arguments.seed, workers)
            for name in arguments.tables:
                began = time.perf_counter()
                text = self.sections[name].section(bench)
                took = time.perf_counter() - began
                options = f"--splits {arguments.splits} --seed {arguments.seed}"
                sets = f" --sets {shlex.join(arguments.sets)}" if arguments.sets else ""
                command = f"TAUGATE_DATA=… python {self.script} --tables {name} {options}{sets}"
                section = {self.sections[name].HEADING: f"{page.stamp(command, took)}\n\n{text}"}
                page.write(arguments.page, self.title, self.introduction, headings, section)
                print(f"{name}: {took:.0f} s", flush=True)

    def _arguments(self, description: str | None) -> argparse.Namespace:
        parser = argparse.ArgumentParser(
            description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )
        names = [*self.sections]
        parser.add_argument("--splits", type=int, default=self.splits, help="random splits; slow tables take fewer")
        parser.add_argument("--seed", type=int, default=0, help="of every random choice")
        parser.add_argument("--sets", nargs="*", default=[], help="data sets, all where none is named")
        parser.add_argument("--tables", nargs="*", choices=names, default=names, help="sections to measure")
        parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks" / self.name)
        return parser.parse_args()
