"""The table that the product ships: what a provisional release says of its figures follows from it."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import orjson

from benchmarks.checkout import ROOT
from benchmarks.generated.cases import Case
from taugate.calibration.provisional.bias import MeasuredSet

SHIPPED = ROOT / "src" / "taugate" / "calibration" / "provisional" / "bias.json"


def measured_sets(cases: Sequence[Case]) -> list[MeasuredSet]:
    """Return the rows of the table; their losses are those of the default threshold.

    Args:
        cases: Sets with encoders.
    """
    return [
        MeasuredSet(
            set=case.name,
            encoder=case.encoder,
            accuracy_generated=case.accuracy_generated.mean,
            accuracy_human=case.accuracy_human.mean,
            loss_generated=case.default.generated.lost.mean,
            loss_human=case.default.human.lost.mean,
        )
        for case in cases
    ]


def write_shipped(cases: Sequence[Case], path: Path = SHIPPED) -> None:
    """Write the table.

    Args:
        cases: Every set with every encoder.
        path: Of the file.
    """
    rows = (b"  " + orjson.dumps(asdict(row)) for row in measured_sets(cases))
    path.write_bytes(b"[\n" + b",\n".join(rows) + b"\n]\n")
