"""Loads an encoder of any kind from its folder: a model in this process, or an endpoint."""

from pathlib import Path

from taugate.retrieval.encoder.encoder import ExportedEncoder, read_config
from taugate.retrieval.encoder.endpoint_record import EndpointAccess


def load_encoder(folder: Path, threads: int | None = None, access: EndpointAccess | None = None) -> ExportedEncoder:
    """Load an exported encoder, or prepare to reach the endpoint that its configuration names.

    Args:
        folder: Folder of its files.
        threads: Number of threads for a batch, by default the processors that this process may use.
        access: How to reach an endpoint, by default as the environment says.

    Raises:
        EncoderError: If a file is missing or invalid.
    """
    if read_config(folder).runtime != "endpoint":
        return ExportedEncoder.load(folder, threads)
    from taugate.retrieval.encoder.endpoint import EndpointEncoder  # loads httpx2, which few need

    return EndpointEncoder.connect(folder, access or EndpointAccess.from_environment())
