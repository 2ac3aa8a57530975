"""Loads an encoder of any kind from its folder: a model, an endpoint, or none if vectors come with the texts."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from taugate.errors import NoEncoder
from taugate.policy.arrays import Float32
from taugate.release.encoder import EncoderConfig, Role
from taugate.retrieval.encoder.encoder import EncoderElsewhere, EndpointAccess, ExportedEncoder, Tokens, read_config
from taugate.storage.files import sha256_json

VECTORS = "vectors"  # names them if an encoder is to be named


class OwnVectors(EncoderElsewhere):
    """An encoder that is not there: it has a dimension and a digest, but cannot read a text.

    Releases with vectors of equal length count as having the same encoder, because nothing else is known about it.
    """

    def __init__(self, dimension: int, max_norm: float | None = None) -> None:
        """Stand for the model of vectors, (n, `dimension`); see EncoderConfig for `max_norm`."""
        self.folder = Path()
        self.config = EncoderConfig(
            name=VECTORS,
            revision="",
            runtime="none",
            dimension=dimension,
            max_length=1,
            pooling="none",
            max_norm=max_norm,
            max_cosine_difference=0.0,
        )
        self.sha256 = sha256_json([VECTORS, dimension, *([] if max_norm is None else [max_norm])])

    def tokenize(self, texts: Sequence[str], role: Role) -> list[Tokens]:
        """Return nothing for no text. Raises NoEncoder if there is a text."""
        if texts:
            raise NoEncoder(
                f"the release has no encoder, because it was calibrated on vectors; give {role} vectors of length "
                f"{self.config.model_dimension}, made by the same model"
            )
        return []

    def embed(self, tokens: Sequence[Tokens], progress: Callable[[int], object] | None = None) -> Float32:
        """Return (0, dimension) float32: there are no tokens."""
        return np.zeros((len(tokens), self.config.dimension), dtype=np.float32)


def load_encoder(folder: Path, threads: int | None = None, access: EndpointAccess | None = None) -> ExportedEncoder:
    """Load an exported encoder, or prepare to reach the endpoint that its configuration names."""
    if read_config(folder).runtime != "endpoint":
        return ExportedEncoder.load(folder, threads)
    from taugate.retrieval.encoder.endpoint import EndpointEncoder  # loads httpx2, which few need

    return EndpointEncoder.connect(folder, access or EndpointAccess.from_environment())
