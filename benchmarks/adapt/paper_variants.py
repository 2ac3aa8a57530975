"""The encoders that the thresholds paper compares (§2.4): base, PT, FT, PT-FT, and the latter two merged with the base."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer

from benchmarks.adapt.embedded import embed
from taugate.adaptation.pairs.negatives import PairedTexts
from taugate.adaptation.pairs.queries import AdaptationQueries
from taugate.adaptation.parts import TRAIN
from taugate.adaptation.training.fine_tuning import Triplets, fine_tune
from taugate.adaptation.training.merging import merge
from taugate.adaptation.training.pretraining import corpus_sentences, pretrain
from taugate.adaptation.training.run import Schedule, TrainingRun
from taugate.adaptation.workshop import RATES
from taugate.calibration.encoding.source import DEFAULT_ENCODER, model_folder
from taugate.calibration.export.torch_model import load_model
from taugate.calibration.metrics.documents import relevant_passages
from taugate.calibration.progress import Stopwatch
from taugate.ingestion.dataset.beir import Dataset
from taugate.storage.files import sha256_json
from taugate.storage.folders import cache_folder

_BATCH = 32  # with 256, an hour of two cores would be some tens of steps
_BFLOAT16 = True  # products on two cores: some five pairs a second, against three in float32
_MERGED = 0.5  # the default of LM-Cocktail, which the paper's footnote 2 leads to: nothing is chosen
_STREAM = 7  # of the seed, for negatives
_NAMES = {"pt": "PT", "ft": "FT", "pt-ft": "PT-FT", "ft-merged": "FT, merged", "pt-ft-merged": "PT-FT, merged"}


@dataclass(frozen=True)
class Variants:
    """The encoders of one comparison, each made once and kept in the cache.

    Attributes:
        dataset: Of the domain.
        queries: Of the domain.
        steps: Of pre-training and of fine-tuning, each.
        seed: Of every random choice.
    """

    dataset: Dataset
    queries: AdaptationQueries
    steps: int
    seed: int

    def make(self) -> tuple[dict[str, str], dict[str, float]]:
        """Train what is not there yet; a run that was killed goes on.

        Returns the name or the folder of each encoder by its name in the table, the base first, and the seconds that the
        trained ones took, where they were trained just now.
        """
        seconds = {}
        for stage in ("pt", "ft", "pt-ft"):
            if not self._folder(stage).is_dir():
                began = time.perf_counter()
                self._train(stage)
                seconds[_NAMES[stage]] = time.perf_counter() - began
                print(f"{stage}: {seconds[_NAMES[stage]]:.0f} s", file=sys.stderr, flush=True)
        for stage in ("ft", "pt-ft"):
            if not self._folder(f"{stage}-merged").is_dir():
                base, trained = (load_model(folder, stage) for folder in (self._base, self._folder(stage)))
                merge(base, trained, _MERGED)
                self._save(trained, f"{stage}-merged")
        return {"base": DEFAULT_ENCODER} | {name: str(self._folder(key)) for key, name in _NAMES.items()}, seconds

    def _train(self, stage: str) -> None:
        model = load_model(self._folder("pt") if stage == "pt-ft" else self._base, stage)
        run = TrainingRun(self._folder(f"{stage}.work"), self.seed, Stopwatch(), bfloat16=_BFLOAT16)
        if stage == "pt":
            texts = [*corpus_sentences(self.dataset.documents, self.queries.parts.passages(TRAIN))]
            pretrain(model, stage, texts, run, Schedule(self.steps, _BATCH, RATES["pt"]))
        else:
            schedule = Schedule(self.steps, _BATCH, RATES["ft"])
            fine_tune(model, self._triplets(), schedule, run)
        self._save(model, stage)

    def _triplets(self) -> Triplets:
        """Draw triplets whose negatives are those that the base encoder confuses with answers."""
        documents, asked = self.dataset.documents, self.queries.train
        allowed = self.queries.parts.passages(TRAIN)
        texts = [documents[position].encoded_text for position in allowed.tolist()]
        relevant = [np.searchsorted(allowed, each) for each in relevant_passages(asked, documents.parents)]
        questions = [query.text for query in asked]
        vectors = embed(DEFAULT_ENCODER, questions, "query"), embed(DEFAULT_ENCODER, texts, "document")
        paired = PairedTexts(vectors[0], questions, relevant, vectors[1], texts)
        negatives = paired.mine(1, np.random.default_rng([self.seed, _STREAM])).positions
        return Triplets.draw(questions, texts, relevant, negatives, self.steps * _BATCH, self.seed)

    def _save(self, model: SentenceTransformer, stage: str) -> None:
        """Write a model under another name first, so that a folder of the final name is whole."""
        partial = self._folder(f"{stage}.partial")
        model.save(str(partial), create_model_card=False)
        partial.rename(self._folder(stage))

    @property
    def _base(self) -> Path:
        return model_folder(DEFAULT_ENCODER)

    def _folder(self, stage: str) -> Path:
        settings = [self.dataset.name, len(self.dataset.documents), self.steps, self.seed, 2]
        return cache_folder() / "benchmarks" / f"paper-{sha256_json(settings)[:16]}" / stage
