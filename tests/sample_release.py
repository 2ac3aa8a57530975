"""A release of the sample data set with the encoder without PyTorch, for programs outside pytest."""

import contextlib
import io
from pathlib import Path

import zaragoza_construction_faq

from taugate.cli import main as cli
from taugate.data.location import write_sample
from tests.fake_encoder import write_fake_encoder


def write_sample_release(folder: Path) -> Path:
    """Calibrate in an empty folder; returns the releases directory, whose only release is the current one."""
    texts = [entry[field] for entry in zaragoza_construction_faq.load(lang="en") for field in ("q", "a")]
    write_sample(folder / "zaragoza")
    encoder, releases = write_fake_encoder(folder / "encoder", texts), folder / "releases"
    command = ["calibrate", str(folder / "zaragoza"), "--releases", str(releases), "--encoder", str(encoder)]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as stderr:
        status = cli.main(command)
    if status:
        raise RuntimeError(f"the sample could not be calibrated: {stderr.getvalue()}")
    return releases
