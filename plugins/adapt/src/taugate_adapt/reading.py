"""Reads and encodes what an adaptation learns from."""

from collections import Counter
from importlib.metadata import version
from pathlib import Path

from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.encoder_options import InputOptions
from taugate.calibration.encoding.source import document_encoder, exported_encoder
from taugate.calibration.progress import Job
from taugate.data.beir import Dataset, read_dataset
from taugate.data.generation.generate import read_accounting
from taugate.data.judgements import check_split, qrels_of, splits_in
from taugate.data.location import default_split, local_folder
from taugate.errors import EncoderError
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.encoder.loading import load_encoder
from taugate.retrieval.hardware import onnxruntime_version
from taugate.storage.files import sha256_json
from taugate_adapt.pairs import AdaptationQueries
from taugate_adapt.recipes import EncodedPairs
from taugate_adapt.settings import TRAIN, AdaptationSettings


def load_base(base: str) -> ExportedEncoder:
    """Load the encoder to adapt, exported."""
    if document_encoder(base) is not None:
        raise EncoderError(
            f"encoder {base!r}: only its queries pass a learned map, not its documents; use the encoder from which it "
            "was adapted"
        )
    encoder = load_encoder(exported_encoder(base, InputOptions(similarity="cosine")))
    if encoder.config.precision != "float32":
        raise EncoderError(
            f"encoder {base!r}: has {encoder.config.precision} weights, which encode only queries; use the float32 "
            "encoder from which it was quantised"
        )
    return encoder


def read_splits(data: str, settings: AdaptationSettings, spool: Path, job: Job) -> tuple[Dataset, AdaptationQueries]:
    """Read the evaluation split and the training split, if there is one, and divide their queries."""
    deciding = settings.eval_split
    if deciding is None:
        deciding = default_split(data, job.report, "admission is decided by", "--eval-split")
    named = [] if settings.split is None or settings.split == deciding else [settings.split]
    with local_folder(data, deciding, *named, optional=(TRAIN,) if settings.split is None else ()) as folder:
        split = TRAIN if settings.split is None and TRAIN in splits_in(folder) else settings.split
        spools = [spool / name for name in ("evaluation", "training")]
        for path in spools:
            path.mkdir()
        check_split(folder / qrels_of(deciding), "--eval-split")
        lowest = settings.relevant_from
        evaluation = read_dataset(folder, deciding, spools[0], relevant_from=lowest)
        for note in evaluation.notes:
            job.report(note)
        if len({query.weight for query in evaluation.answerable}) > 1:
            job.report(
                f"warning: the queries of split {evaluation.split} have weights, which acceptance does not use: the "
                "gain is that of the judged queries, not of all queries"
            )
        if split is None:
            job.report("no split train: learning from crops of the documents")
            return evaluation, AdaptationQueries.collect(evaluation, None, settings.seed)
        training = evaluation if split == deciding else read_dataset(folder, split, spools[1], relevant_from=lowest)
        origins = {query.origin for query in training.answerable}
        accounts = [account for origin, account in read_accounting(folder).items() if origin in origins]
        lost = sum((Counter(account.lost) for account in accounts), Counter[str]())
        return evaluation, AdaptationQueries.collect(evaluation, training, settings.seed, lost if accounts else None)


def encode_pairs(dataset: Dataset, queries: AdaptationQueries, encoder: ExportedEncoder, job: Job) -> EncodedPairs:
    """Encode documents and queries with the base encoder, or read their embeddings from the cache."""
    cache = EmbeddingCache.of(encoder)
    encoded = EncodedPairs.encode(dataset.documents, queries, encoder, cache, job)
    if cache.failure:
        job.report(f"warning: no embedding cache: {cache.failure}")
    return encoded


def work_digest(pairs: EncodedPairs, encoder: ExportedEncoder, settings: AdaptationSettings) -> str:
    """Return the digest of everything that determines the result: encoder, texts, settings and versions."""
    parts = pairs.queries
    queries = [
        [query.id, query.text, [int(position) for position in query.relevant]]
        for part in (parts.train, parts.validation, parts.unseen, *parts.unanswerable.values())
        for query in part
    ]
    versions = [version("taugate"), onnxruntime_version()]
    values = [str(getattr(settings, name)) for name in AdaptationSettings.fields()]
    texts = [pairs.corpus[row].encoded_text for row in range(len(pairs.documents))]
    return sha256_json([encoder.sha256, queries, texts, values, versions])
