"""One adaptation, from a data set to an encoder: `adapt` reads top to bottom in the order in which it happens."""

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from taugate.adaptation.admission import Admission
from taugate.adaptation.linear.map import LinearMap
from taugate.adaptation.pairs.queries import AdaptationQueries
from taugate.adaptation.recipes import EncodedPairs, LearnedRecipes
from taugate.adaptation.settings import TRAIN, AdaptationSettings
from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode
from taugate.calibration.encoding.source import exported_encoder, model_folder
from taugate.calibration.metrics.isotropy import isotropy
from taugate.calibration.progress import Stopwatch
from taugate.errors import EncoderError
from taugate.ingestion.dataset.beir import Dataset, LabelledQuery, read_dataset
from taugate.ingestion.dataset.judgements import splits_in
from taugate.ingestion.dataset.location import default_split, local_folder
from taugate.ingestion.queries.accounting import read_accounting
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.release.adaptation import AdaptationRecord
from taugate.retrieval.release.evidence import IsotropyRecord
from taugate.retrieval.vectors.similarity import Float32


@dataclass(frozen=True)
class Adaptation:
    """What came of an adaptation; learned: the map that was chosen; record: of it, with the evidence."""

    learned: LinearMap
    record: AdaptationRecord


def adapt(
    data: str,
    base: str,
    target: Path,
    settings: AdaptationSettings,
    say: Callable[[str], None],
    watch: Stopwatch,
) -> AdaptationRecord:
    """Adapt an encoder to a data set, judge it, and write it with its record, admitted or not.

    data: folder of the data set, or its URL; base: name or folder of a sentence-transformers model, or folder of an
    exported encoder; target: folder to make for
    the adapted one; settings: of the adaptation; say: told one line of progress or warning at a time; watch: stopwatch
    whose stages grow. Raises InputError or EncoderError; then nothing has been written.
    """
    from taugate.adaptation.folder import check_target, write_encoder  # imports PyTorch

    check_target(target)
    with tempfile.TemporaryDirectory(prefix="taugate-") as spool:
        with watch.stage("read"):
            evaluation, queries = _read(data, settings, Path(spool), say)
        with watch.stage("export"):
            encoder = _load(base)
        found = learn_and_judge(evaluation, queries, encoder, settings, say, watch)
        with watch.stage("write"):
            write_encoder(model_folder(base), base, found.learned, found.record, target)
    return found.record


def learn_and_judge(  # noqa: PLR0913, PLR0917 (data, base and how)
    dataset: Dataset,
    queries: AdaptationQueries,
    encoder: OnnxEncoder,
    settings: AdaptationSettings,
    say: Callable[[str], None],
    watch: Stopwatch,
    steps: int | None = None,
) -> Adaptation:
    """Encode, try the recipes and judge them; nothing is written.

    dataset: its documents; queries: of the three parts; encoder: the base; settings, say, watch: as for `adapt`; steps:
    gradient steps of the adapter, None for as many as the budget allows.
    """
    pairs = _encode(dataset, queries, encoder, say, watch)
    with watch.stage("adapt"):
        allowed = (lambda: settings.seconds - watch.total) if steps is None else steps
        learned = LearnedRecipes.climb(pairs, settings.recipe, settings.seed, allowed, say)
    with watch.stage("admit"):
        admission = Admission.decide(pairs, learned)
        return Adaptation(learned.chosen.learned, _record(pairs, learned, admission, encoder, settings))


def _load(base: str) -> OnnxEncoder:
    encoder = OnnxEncoder.load(exported_encoder(base))
    if encoder.config.precision != "float32":
        raise EncoderError(
            f"encoder {base!r}: has {encoder.config.precision} weights, which encode only queries; give the float32 "
            "encoder that it was made from"
        )
    return encoder


def _read(
    data: str, settings: AdaptationSettings, spool: Path, say: Callable[[str], None]
) -> tuple[Dataset, AdaptationQueries]:
    """Read the split that decides, and the one to learn from, if any, and divide their queries."""
    deciding = settings.eval_split or default_split(data, say)
    named = [] if settings.split in {None, deciding} else [settings.split]
    with local_folder(data, deciding, *named, optional=() if settings.split else (TRAIN,)) as folder:
        split = settings.split or (TRAIN if TRAIN in splits_in(folder) else None)
        spools = [spool / name for name in ("evaluation", "training")]
        for each in spools:
            each.mkdir()
        evaluation = read_dataset(folder, deciding, spools[0])
        if len({query.weight for query in evaluation.answerable}) > 1:
            say(
                f"warning: the queries of split {evaluation.split} have weights, which admission does not use: the "
                "gain is that of the judged queries, not of all"
            )
        if split is None:
            say("no split train: learning from crops of the documents")
            return evaluation, AdaptationQueries.collect(evaluation, None, settings.seed)
        training = evaluation if split == deciding else read_dataset(folder, split, spools[1])
        origins = {query.origin for query in training.answerable}
        accounts = [each for origin, each in read_accounting(folder).items() if origin in origins]
        lost = sum((Counter(each.lost) for each in accounts), Counter[str]())
        return evaluation, AdaptationQueries.collect(evaluation, training, settings.seed, lost if accounts else None)


def _encode(
    dataset: Dataset,
    queries: AdaptationQueries,
    encoder: OnnxEncoder,
    say: Callable[[str], None],
    watch: Stopwatch,
) -> EncodedPairs:
    """Encode documents and queries with the base encoder, or read their embeddings from the cache."""
    cache = EmbeddingCache.for_encoder(encoder.sha256, encoder.config.dimension)

    def of_queries(asked: Sequence[LabelledQuery]) -> Float32:
        return encode(encoder, (query.text for query in asked), len(asked), "query", cache, watch).vectors

    texts = (document.encoded_text for document in dataset.documents)
    documents = encode(encoder, texts, len(dataset.documents), "document", cache, watch)
    encoded = EncodedPairs(
        queries,
        documents.vectors,
        of_queries(queries.train),
        of_queries(queries.validation),
        of_queries(queries.unseen),
        dataset.documents,
    )
    if cache.failure:
        say(f"warning: no embedding cache: {cache.failure}")
    return encoded


def _record(
    pairs: EncodedPairs,
    learned: LearnedRecipes,
    admission: Admission,
    encoder: OnnxEncoder,
    settings: AdaptationSettings,
) -> AdaptationRecord:
    after = learned.chosen.learned.apply(pairs.documents)
    return AdaptationRecord(
        recipe=learned.chosen.name,
        asked=settings.recipe,
        base=encoder.config.name,
        base_sha256=encoder.config.revision,
        pairs=pairs.queries.record,
        seeds={"documents": settings.seed, "pairs": settings.seed},
        budget=settings.budget,
        steps=learned.steps,
        whitening=learned.whitening,
        curve=learned.curve,
        admitted=admission.admitted,
        reason=admission.reason,
        evidence=pairs.queries.evidence,
        gain=admission.gain,
        recall=admission.recall,
        isotropy_before=IsotropyRecord(**asdict(isotropy(pairs.documents))),
        isotropy_after=IsotropyRecord(**asdict(isotropy(after))),
        gate=admission.gate,
    )
