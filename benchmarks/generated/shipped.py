"""The measurements that the product ships, from which a provisional release states its bias."""

from collections.abc import Sequence
from pathlib import Path

import orjson

from benchmarks.checkout import ROOT
from benchmarks.generated.cases import Case

SHIPPED = ROOT / "calibration" / "provisional" / "bias.json"


def write_shipped(cases: Sequence[Case], path: Path = SHIPPED) -> None:
    """Write one object for each data set and encoder.

    cases: of all sets, with every encoder; path: of the file. The loss is that of the default threshold from cropped
    queries.
    """
    rows = [
        {
            "set": case.name,
            "encoder": case.encoder,
            "accuracy_generated": case.accuracy_generated.mean,
            "accuracy_human": case.accuracy_human.mean,
            "loss_generated": case.default.generated.lost.mean,
            "loss_human": case.default.human.lost.mean,
        }
        for case in cases
    ]
    path.write_bytes(b"[\n" + b",\n".join(b"  " + orjson.dumps(row) for row in rows) + b"\n]\n")
