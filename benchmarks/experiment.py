"""The means to measure tables of calibration, evidence and gate: encoded data sets, workers, splits, a seed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from threadpoolctl import threadpool_limits

from benchmarks.page import Option, Page, Section, data_folder
from benchmarks.searched import EncodedSplit, SearchedSplit
from benchmarks.workers import Workers
from taugate.calibration.encoding.source import DEFAULT_ENCODER

_SECOND = "sre_embedding_model"  # PyPI: a fine-tuned MiniLM whose similarities have quite another scale


@dataclass(frozen=True)
class Experiment:
    """The plan of one run.

    Attributes:
        data: The folder with the public data sets.
        sets: Names that were asked for, empty for all.
        splits: Random splits of a table of coverages, of which tables of means take a part.
        seed: Of every random choice.
        workers: Processes for splits.
    """

    data: Path
    sets: frozenset[str]
    splits: int
    seed: int
    workers: Workers

    def part(self, most: int) -> int:
        """Return how many splits a table of means takes: `splits`, but at most so many."""
        return min(most, self.splits)

    def wanted(self, names: Iterable[str]) -> list[str]:
        """Choose the data sets that were asked for and exist; prints which are missing."""
        asked = [name for name in names if not self.sets or name in self.sets or name.split("/")[0] in self.sets]
        for name in [name for name in asked if not self._folder(name).is_dir()]:
            print(f"{name} is left out: there is no {self._folder(name)}")
        return [name for name in asked if self._folder(name).is_dir()]

    def encoded(self, name: str, encoder: str = DEFAULT_ENCODER) -> EncodedSplit:
        """Encode a data set, through the project's own cache."""
        return _encoded(self.data, name, encoder)

    def searched(self, name: str, k: int, encoder: str = DEFAULT_ENCODER) -> SearchedSplit:
        """Encode a data set and search it at depth k; name and encoder as for `encoded`."""
        return SearchedSplit.of(self.encoded(name, encoder), k)

    def _folder(self, name: str) -> Path:
        return self.data / name.split("/", maxsplit=1)[0]


def second_encoder() -> str | None:
    """Return the folder of the second encoder's weights, None if its package is not installed."""
    spec = find_spec(_SECOND)
    return str(Path(spec.origin).parent / "model_weights") if spec and spec.origin else None


def experiment_page(
    *, file: str, module: str, title: str, introduction: str, sections: Mapping[str, Section[Experiment]], splits: int
) -> Page[Experiment]:
    """Declare a page whose sections are measured on random splits."""
    options = [
        Option("splits", splits, "random splits; slow tables take fewer"),
        Option("seed", 0, "of every random choice"),
    ]
    return Page(file, module, title, introduction, sections, options, has_sets=True)


def measure(page: Page[Experiment], description: str | None) -> None:
    """Measure the sections asked for on the command line, each in the same workers, and write them to the page."""
    arguments = page.parse(page.parser(description))
    with threadpool_limits(limits=1), Workers() as workers:
        experiment = Experiment(data_folder(), frozenset(arguments.sets), arguments.splits, arguments.seed, workers)
        for name in arguments.tables:
            page.measure(name, experiment, arguments)


@lru_cache(maxsize=2)
def _encoded(data: Path, name: str, encoder: str) -> EncodedSplit:
    folder, _, split = name.partition("/")
    return EncodedSplit.read(data, folder, split or "test", encoder)
