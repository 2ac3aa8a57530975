"""What every table needs: the data sets asked for, encoded and searched, the workers, the splits and the seed."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from searched import Encoded, Searched
from workers import Workers

from taugate.calibration.encoding.source import DEFAULT_ENCODER

_SECOND = "sre_embedding_model"  # PyPI: a fine-tuned MiniLM whose similarities have quite another scale


@dataclass(frozen=True)
class Bench:
    """data: TAUGATE_DATA; sets: names asked for, empty for all; splits: of the coverage, tables of means take a part."""

    data: Path
    sets: frozenset[str]
    splits: int
    seed: int
    workers: Workers

    def part(self, most: int) -> int:
        """How many splits a table of means takes: at most so many."""
        return min(most, self.splits)

    def wanted(self, names: Iterable[str]) -> list[str]:
        """Those of the names that were asked for and are there."""
        asked = [name for name in names if not self.sets or name in self.sets or name.split("/")[0] in self.sets]
        for name in [name for name in asked if not self._folder(name).is_dir()]:
            print(f"{name} is left out: there is no {self._folder(name)}")
        return [name for name in asked if self._folder(name).is_dir()]

    def encoded(self, name: str, encoder: str = DEFAULT_ENCODER) -> Encoded:
        """A data set as vectors; name: of its folder, with its split after a slash unless that is test."""
        return _encoded(self.data, name, encoder)

    def searched(self, name: str, k: int, encoder: str = DEFAULT_ENCODER) -> Searched:
        """The same, searched."""
        return Searched.of(self.encoded(name, encoder), k)

    def _folder(self, name: str) -> Path:
        return self.data / name.split("/", maxsplit=1)[0]


def second_encoder() -> str | None:
    """Folder of the second encoder's weights, None where its package is not installed."""
    spec = find_spec(_SECOND)
    return str(Path(spec.origin).parent / "model_weights") if spec and spec.origin else None


@lru_cache(maxsize=2)
def _encoded(data: Path, name: str, encoder: str) -> Encoded:
    folder, _, split = name.partition("/")
    return Encoded.read(data, folder, split or "test", encoder)
