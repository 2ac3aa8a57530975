"""The texts on which an exported encoder is checked, and what they show of it."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from taugate.calibration.export.model_folder import ModelFolder
from taugate.errors import EncoderError
from taugate.policy.arrays import Float32
from taugate.release.encoder import CONFIG, EncoderConfig
from taugate.release.golden import TOLERANCE
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.vectors import max_norm_above

Prompts = Mapping[str, str | None]  # by name; sentence-transformers adds empty ones
_SENTENCE = "The threshold of a retrieval system decides which of the passages it has found are worth reading. "
PROBES = [
    "?",
    "threshold",
    "What is the warranty period for a new roof?",
    "cosine similarity of two unit vectors",
    "Who pays when a contractor goes bankrupt before the house is finished, and which documents prove it?",
    "def keep(scores, tau):\n    return [score for score in scores if score >= tau]",
    "HIV-1 mother-to-child transmission; DC-SIGNR p.Arg198Gln, n = 197, 95 % CI 1.2–3.4",
    "Vad kostar en bergvärmepump för en villa på 150 kvadratmeter?",
    "¿Cuándo empezó la crisis del petróleo?",
    "Какая температура кипения воды?",
    "検索の閾値はどのように決めますか。",
    "ما هي عتبة التشابه؟",
    "naïve café — “quoted” … 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 🙂",
    *(_SENTENCE * repeats for repeats in (1, 2, 4, 8, 16, 64)),
]
_PASSAGE = 70  # characters; means of fewer tokens are often longer vectors
# The graph must not change a similarity by more than a golden query may differ: |Δs| ≤ |Δv| = √(2(1 − cos)).
MAX_COSINE_DIFFERENCE = TOLERANCE**2 / 2

# With padding, more queries share a batch, so several are encoded 4 to 9 % faster; a single query is as fast as before
# (benchmarks/results/encoder.md).
_PAD_MULTIPLE = 4


def config_of(
    declared: ModelFolder, name: str, revision: str, measures: tuple[int, int, str], prompts: Prompts
) -> EncoderConfig:
    """Return the configuration of an exported transformer before it is checked."""
    dimension, max_length, pooling = measures
    return EncoderConfig(
        name=name,
        revision=revision,
        dimension=dimension,
        max_length=max_length,
        pooling=pooling,
        query_prompt=prompt_of(prompts, "query"),
        document_prompt=prompt_of(prompts, "document", "passage", "corpus"),
        pad_multiple=_PAD_MULTIPLE,
        pair_lone_texts=False,
        stored_type=None if declared.stored_type == "F32" else declared.stored_type,
        assumed_pooling=declared.assumes_pooling,
    )


def prompt_of(prompts: Prompts, *names: str) -> str:
    """Return the first prompt with these names that is not empty."""
    return next((prompt for name in names if (prompt := prompts.get(name))), "")


def max_norm_of(documents: Float32) -> float:
    """Return M for inner products with documents like the probes that are passages, of whose vectors it is given."""
    passages = [len(probe) >= _PASSAGE for probe in PROBES]
    return max_norm_above(float(np.linalg.norm(documents[passages], axis=1).max()))


def largest_distance(first: Float32, second: Float32) -> float:
    """Return the largest ½|a − b|² over pairs of rows of two (n, d) arrays.

    It is 1 − cosine for unit vectors, exact for small angles, and 0 for two zero vectors.
    """
    return float(((first.astype(np.float64) - second) ** 2).sum(axis=1).max()) / 2


def checked_difference(difference: float, name: str) -> float:
    """Return the largest 1 − cosine between the graph and PyTorch on the probes."""
    if not difference <= MAX_COSINE_DIFFERENCE:
        raise EncoderError(
            f"encoder {name!r}: the exported graph and PyTorch differ by 1 − cosine = {difference:.2g} on the probe "
            f"texts, more than {MAX_COSINE_DIFFERENCE:.2g}; this model cannot be served; choose another one"
        )
    return difference


def depends_on_company(encoder: ExportedEncoder) -> bool:
    """Return whether a text encoded alone gets other bits than the same text in a batch."""
    pairs = encoder.encode([probe for probe in PROBES for _ in range(2)], "document")[::2]
    alone = np.concatenate([encoder.encode([probe], "document") for probe in PROBES])
    return not np.array_equal(pairs, alone)


def write_config(config: EncoderConfig, target: Path) -> None:
    """Write encoder.json into the encoder's folder `target`."""
    (target / CONFIG).write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")
