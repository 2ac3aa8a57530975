"""Count how often `taugate adapt` admits a second stage that was trained on shuffled labels."""

import json
import tempfile
from pathlib import Path
from typing import get_args

import numpy as np
import zaragoza_construction_faq
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import AutoTokenizer, BertConfig, BertModel

from benchmarks.experiment import Experiment
from benchmarks.markdown import share, table, verdict
from taugate.calibration.encoding.source import DEFAULT_ENCODER, model_folder
from taugate.calibration.progress import Job
from taugate.evidence.risk.certify import upper_limit
from taugate.release.adaptation import RerankerStage
from taugate_adapt.reranker import adapt_reranker
from taugate_adapt.settings import AdaptationSettings

HEADING = "Second stages of shuffled labels"
_RUNS, _STEPS, _ALPHA = 55, 16, 0.05
_TOKENS, _DIMENSION = 64, 32


def section(experiment: Experiment) -> str:
    """Train both kinds of a second stage on judgements that were permuted, with one seed after the other."""
    stages: tuple[RerankerStage, ...] = get_args(RerankerStage)
    with tempfile.TemporaryDirectory(prefix="taugate-") as folder:
        encoder = _encoder(Path(folder, "encoder"))
        admitted = {
            stage: sum(_admitted(stage, experiment.seed + run, encoder, Path(folder)) for run in range(_RUNS))
            for stage in stages
        }
    runs, total = _RUNS * len(stages), sum(admitted.values())
    rows = [[f"`{stage}`", str(_RUNS), str(count)] for stage, count in admitted.items()]
    return f"""\
The documents and questions of the sample, with the answers of all questions permuted, so no second stage can be better than chance. In
every run, another permutation and another seed. A random transformer of two layers and {_DIMENSION} dimensions learns for {_STEPS} steps, and
the gate judges it on unseen documents.

{table(["`--stage`", "runs", "admitted"], [*rows, ["together", str(runs), str(total)]])}

At most .05 may be admitted: {share(total / runs)}, {verdict(reached=total / runs <= _ALPHA)}. The 95 % upper limit of that share is {share(upper_limit(total, runs, 1 - _ALPHA))}.
"""


def _admitted(stage: RerankerStage, seed: int, encoder: Path, folder: Path) -> bool:
    data, target = folder / f"{stage}-{seed}", folder / f"{stage}-{seed}-model"
    entries = zaragoza_construction_faq.load(lang="en")
    answers = np.random.default_rng(seed).permutation(len(entries)).tolist()
    (data / "qrels").mkdir(parents=True)
    for name, field in (("corpus", "a"), ("queries", "q")):
        texts = [json.dumps({"_id": f"{field}{row}", "text": entry[field]}) for row, entry in enumerate(entries)]
        (data / f"{name}.jsonl").write_text("\n".join(texts) + "\n")
    lines = [f"q{row}\ta{answer}\t1" for row, answer in enumerate(answers)]
    (data / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    settings = AdaptationSettings(stage=stage, split="test", budget=f"{_STEPS}steps", seed=seed)
    return adapt_reranker(str(data), str(encoder), target, settings, Job()).admitted


def _encoder(folder: Path) -> Path:
    """Write an encoder with random weights and the default encoder's words."""
    parts = folder / "parts"
    tokenizer = AutoTokenizer.from_pretrained(model_folder(DEFAULT_ENCODER), model_max_length=_TOKENS)
    tokenizer.save_pretrained(parts)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=_DIMENSION,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * _DIMENSION,
        max_position_embeddings=_TOKENS,
    )
    BertModel(config).save_pretrained(parts)
    modules = [Transformer(str(parts), max_seq_length=_TOKENS), Pooling(_DIMENSION), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "model"), create_model_card=False)
    return folder / "model"
