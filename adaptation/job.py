"""One adaptation, from a data set to an encoder: `adapt` reads top to bottom in the order in which it happens."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from taugate.adaptation.admission import Admission, K
from taugate.adaptation.linear.map import LinearMap
from taugate.adaptation.measures import Encode, EncoderComparison, OtherTexts, ParaphrasedQueries
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
from taugate.ingestion.dataset.location import default_split
from taugate.ingestion.queries.replies import LanguageModel
from taugate.retrieval.encoder import encoder as exported
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.release.adaptation import AdaptationRecord
from taugate.retrieval.release.evidence import IsotropyRecord
from taugate.retrieval.vectors.similarity import Float32


@dataclass(frozen=True)
class Adaptation:
    """What came of an adaptation.

    learned: the map that was chosen; record: of it, with the evidence; comparison: of all encoders that were tried.
    """

    learned: LinearMap
    record: AdaptationRecord
    comparison: EncoderComparison


def adapt(  # noqa: PLR0913, PLR0917 (data, base, target and how)
    data: Path,
    base: str,
    target: Path,
    settings: AdaptationSettings,
    say: Callable[[str], None],
    watch: Stopwatch,
    writer: LanguageModel | None = None,
) -> AdaptationRecord:
    """Adapt an encoder to a data set, judge it, and write it with its record, admitted or not.

    data: folder of the data set; base: name or folder of the sentence-transformers model; target: folder to make for
    the adapted one; settings: of the adaptation; say: told one line of progress or warning at a time; watch: stopwatch
    whose stages grow; writer: of paraphrases, None for rules. Raises InputError or EncoderError, and OSError where the
    writer does not answer; then nothing has been written.
    """
    _check_base(base)
    from taugate.adaptation.folder import check_target, write_encoder  # imports PyTorch

    check_target(target)
    with tempfile.TemporaryDirectory(prefix="taugate-") as spool:
        with watch.stage("read"):
            evaluation, training = _read(data, settings, Path(spool), say)
            queries = AdaptationQueries.collect(evaluation, training, settings.seed)
        with watch.stage("export"):
            encoder = OnnxEncoder.load(exported_encoder(base))
        # First, so that what the budget leaves for recipes is known.
        with watch.stage("measure"):
            asked = _paraphrase(queries.unseen, settings.seed, writer, watch)
            before = OtherTexts.encode(asked, _encode_with(encoder, watch))
        found = learn_and_judge(evaluation, queries, encoder, settings, say, watch)
        with watch.stage("measure"):
            after = before.through(found.learned.apply)
            measures = found.comparison.measure(found.record.recipe, asked, before, after)
            record = found.record.model_copy(update={"measures": measures})
        with watch.stage("write"):
            write_encoder(model_folder(base), base, found.learned, record, target)
    return record


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
        record = _record(pairs, learned, admission, encoder, settings)
        comparison = EncoderComparison(queries.unseen, admission.trials, K, settings.seed)
        return Adaptation(learned.chosen.learned, record, comparison)


def _check_base(base: str) -> None:
    if (Path(base) / exported.CONFIG).is_file():
        raise EncoderError(
            f"{base}: is an exported encoder, which cannot be adapted; give the sentence-transformers folder that it "
            "was exported from"
        )


def _read(
    data: Path, settings: AdaptationSettings, spool: Path, say: Callable[[str], None]
) -> tuple[Dataset, Dataset | None]:
    """Read the split that decides, and the one to learn from; None for crops."""
    split = settings.split
    if split is None and TRAIN in splits_in(data):
        split = TRAIN
    folders = [spool / name for name in ("evaluation", "training")]
    for folder in folders:
        folder.mkdir()
    evaluation = read_dataset(data, settings.eval_split or default_split(str(data), say), folders[0])
    if len({query.weight for query in evaluation.answerable}) > 1:
        say(
            f"warning: the queries of split {evaluation.split} have weights, which admission does not use: the gain is "
            "that of the judged queries, not of all"
        )
    if split is None:
        say("no split train: learning from crops of the documents")
        return evaluation, None
    return evaluation, evaluation if split == evaluation.split else read_dataset(data, split, folders[1])


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
        dataset.documents.parents,
    )
    if cache.failure:
        say(f"warning: no embedding cache: {cache.failure}")
    return encoded


def _paraphrase(
    queries: Sequence[LabelledQuery], seed: int, writer: LanguageModel | None, watch: Stopwatch
) -> ParaphrasedQueries:
    with watch.task("writing paraphrases") as task:

        def advance() -> None:
            task.done += 1

        return ParaphrasedQueries.write(queries, seed, writer, advance)


def _encode_with(encoder: OnnxEncoder, watch: Stopwatch) -> Encode:
    """Return a function that encodes texts, or reads their embeddings from the cache."""
    cache = EmbeddingCache.for_encoder(encoder.sha256, encoder.config.dimension)
    return lambda texts, role: encode(encoder, texts, len(texts), role, cache, watch).vectors


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
