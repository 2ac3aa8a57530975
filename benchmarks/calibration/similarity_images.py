"""Draws the README's picture from the sample: how similar queries are to documents, with the threshold in force.

`python -m benchmarks.calibration.similarity_images [--to FOLDER]` calibrates the sample data set with the defaults and
writes similarity-light.svg and similarity-dark.svg. The same versions and seed give the same files.
"""

import argparse
import contextlib
import io
import tempfile
from pathlib import Path
from typing import get_args

from benchmarks.checkout import ROOT
from benchmarks.standalone import Scheme, standalone
from taugate.calibration.report.figures import densities_figure
from taugate.cli import main as cli
from taugate.data.location import write_sample
from taugate.registry.catalog import current_id
from taugate.release.layout import REFERENCE
from taugate.release.queries import Reference
from taugate.release.verify import verify

_LEGEND = {
    "random": "a question and a random document",
    "correct": "a question and the document that answers it",
    "topk": "a question and each document found for it",
}


def draw(release: Path, folder: Path) -> list[Path]:
    """Write both pictures of a release whose policy is `similarity`, and return their paths."""
    reference, tau = Reference.load(release / REFERENCE), verify(release).policy.tau
    threshold = None if tau is None else (tau, True)
    figure = densities_figure(reference.random, reference.correct, reference.top, threshold, _LEGEND)
    written = []
    for scheme in get_args(Scheme):
        written.append(folder / f"similarity-{scheme}.svg")
        written[-1].write_text(standalone(figure, scheme), encoding="utf-8")
    return written


def sample_release(folder: Path) -> Path:
    """Calibrate the sample data set with the defaults; returns the folder of the release.

    Raises:
        SystemExit: If the calibration fails.
    """
    data, releases = folder / "zaragoza", folder / "releases"
    write_sample(data)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = cli.main(["calibrate", str(data), "--releases", str(releases)])
    name = current_id(releases) if code == 0 else None
    if name is None:
        raise SystemExit(said.getvalue())
    return releases / name


def main() -> None:
    """Calibrate, draw, and print the paths of the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", metavar="FOLDER", type=Path, default=ROOT / "docs" / "images", help="for the pictures")
    folder: Path = parser.parse_args().to
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        for path in draw(sample_release(Path(work)), folder):
            print(path)


if __name__ == "__main__":
    main()
