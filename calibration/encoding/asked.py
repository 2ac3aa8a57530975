"""The encoder that a calibration is asked for, and whether it may differ from the one in force."""

from dataclasses import dataclass
from pathlib import Path

from taugate.errors import InputError
from taugate.registry.promotion import differs, encoder_in_force
from taugate.retrieval.encoder.encoder import OnnxEncoder


@dataclass(frozen=True)
class AskedEncoder:
    """name: of a model, or its path; new: whether it may be another than the current release's.

    It may where somebody named it, or where nothing is promoted: a default must not change what is served.
    """

    name: str
    new: bool

    def check_name(self, releases: Path) -> None:
        """Before any work. Raises InputError."""
        in_force = encoder_in_force(releases)
        if not self.new and in_force not in {None, self.name}:
            raise InputError(
                f"{releases}: the current release was encoded by {in_force}, not by {self.name}; {_REMEDY}"
            )

    def check(self, releases: Path, encoder: OnnxEncoder) -> None:
        """As soon as it is exported: other versions of PyTorch make other bytes of a model. Raises InputError."""
        if not self.new and differs(releases, encoder.sha256):
            raise InputError(f"{releases}: the current release was encoded by another export of {self.name}; {_REMEDY}")


_REMEDY = "name the encoder to be used from now on with --encoder, or give --no-promote"
