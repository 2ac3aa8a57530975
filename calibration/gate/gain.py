"""What an index gains beside exact search in float32: bytes and time."""

from taugate.calibration.gate.trial import Trial
from taugate.calibration.speeds import speeds
from taugate.retrieval.index.build import AnyIndex
from taugate.retrieval.index.files import sizes
from taugate.retrieval.index.flat import FlatIndex
from taugate.retrieval.vectors.projection import Projection

_TIMED, _LONE = 256, 64  # queries together, and one by one


def search_gain(
    trial: Trial, flat: FlatIndex, index: AnyIndex, projection: Projection | None = None
) -> dict[str, float]:
    """Queries of the trial to `flat`, of its documents, and through the projection, where there is one, to `index`.

    bytes_per_document: of the file that every search reads; disk_bytes_per_document: of all files.
    """
    lone = [trial.vectors[row : row + 1] for row in range(min(_LONE, len(trial.vectors)))]
    gain = speeds(
        lambda vectors: flat.search(vectors, trial.k),
        lambda vectors: index.search(projection.apply(vectors) if projection else vectors, trial.k),
        trial.vectors[:_TIMED],
        lone,
    )
    for name, each in (("baseline_", flat), ("", index)):
        memory, disk = sizes(each)
        gain[f"{name}bytes_per_document"] = memory / len(each)
        gain[f"{name}disk_bytes_per_document"] = disk / len(each)
    return gain
