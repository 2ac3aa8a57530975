"""An encoder behind llama.cpp's own server, if the extra `generate` and its model are installed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taugate.calibration.encoding.encoder_options import EndpointOptions, InputOptions, endpoint_encoder
from taugate.data.generation.language_model import packaged_model
from taugate.errors import EncoderUnavailable, InputError
from taugate.retrieval.encoder.encoder import EndpointAccess
from taugate.retrieval.encoder.loading import load_encoder

xllamacpp = pytest.importorskip("xllamacpp", reason="needs the extra generate")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Any:
    try:
        file = packaged_model()
    except InputError as error:
        pytest.skip(str(error))
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(file)
    parameters.n_ctx, parameters.n_parallel, parameters.verbosity = 2048, 1, -1
    parameters.embedding = True
    parameters.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    for processor in (parameters.cpuparams, parameters.cpuparams_batch):
        processor.n_threads, processor.poll = 2, 0  # waiting threads would spin
    return xllamacpp.Server(parameters)


def test_llama_server_encodes_texts_in_order_and_refuses_long_ones(server: Any, tmp_path: Path) -> None:
    name, options = f"openai:{server.listening_address}/v1", EndpointOptions(model="m")
    folder, access = endpoint_encoder(name, InputOptions(max_length=4096), options)
    encoder = load_encoder(folder, access=access)
    texts = ["a roof of slate", "the price of a permit", "a roof of tiles"] * 4
    vectors = encoder.encode(texts, "document")
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-6)
    assert vectors[0] @ vectors[2] > vectors[0] @ vectors[1]
    assert vectors @ vectors.T == pytest.approx(np.tile(vectors[:3] @ vectors[:3].T, (4, 4)), abs=1e-3)
    assert endpoint_encoder(name, InputOptions(max_length=4096), options)[0] == folder  # the same model
    serving = load_encoder(folder, access=EndpointAccess(seconds=20))
    with pytest.raises(EncoderUnavailable, match=r"status was 500 .*too large to process"):
        serving.encode(["word " * 3000], "query")
    assert serving.encode(texts[:1], "query") == pytest.approx(vectors[:1], abs=1e-2)
    serving.close()
    encoder.close()
