"""One adaptation, from a data set to an encoder: `adapt` reads top to bottom in the order in which it happens."""

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from taugate.adaptation.admission import Admission, K
from taugate.adaptation.climb import climb, why_untrainable
from taugate.adaptation.linear.map import LinearMap
from taugate.adaptation.measures import Encode, EncoderComparison, OtherTexts, ParaphrasedQueries
from taugate.adaptation.pairs.queries import AdaptationQueries
from taugate.adaptation.recipes import EncodedPairs, LearnedRecipes
from taugate.adaptation.settings import TRAIN, AdaptationSettings
from taugate.adaptation.unfinished import sole_worker
from taugate.adaptation.workshop import Workshop, graph_of
from taugate.calibration.encoding.cache import EmbeddingCache
from taugate.calibration.encoding.corpus import encode
from taugate.calibration.encoding.source import document_encoder, exported_encoder, model_folder
from taugate.calibration.metrics.isotropy import isotropy
from taugate.calibration.progress import Stopwatch
from taugate.errors import EncoderError
from taugate.ingestion.dataset.beir import Dataset, LabelledQuery, read_dataset
from taugate.ingestion.dataset.judgements import check_split, qrels_of, splits_in
from taugate.ingestion.dataset.location import default_split, local_folder
from taugate.ingestion.queries.accounting import read_accounting
from taugate.ingestion.queries.replies import LanguageModel
from taugate.retrieval.encoder.encoder import OnnxEncoder
from taugate.retrieval.release.adaptation import AdaptationRecord
from taugate.retrieval.release.evidence import IsotropyRecord


@dataclass(frozen=True)
class Adaptation:
    """The result of an adaptation.

    Attributes:
        learned: The map that was chosen, None for none.
        transformer: Folder of the trained model below it, None where its weights are those of the base.
        record: Of the adaptation, with the evidence.
        comparison: Of all encoders that were tried.
    """

    learned: LinearMap | None
    transformer: Path | None
    record: AdaptationRecord
    comparison: EncoderComparison


@dataclass(frozen=True)
class Workplace:
    """Where weights are trained.

    Attributes:
        base: Name or folder of the base model.
        work: Folder of the unfinished work.
    """

    base: str
    work: Path


def adapt(  # noqa: PLR0913, PLR0917 (data, base, target and how)
    data: str,
    base: str,
    target: Path,
    settings: AdaptationSettings,
    say: Callable[[str], None],
    watch: Stopwatch,
    writer: LanguageModel | None = None,
) -> AdaptationRecord:
    """Adapt an encoder to a data set, judge it, and write it with its record, admitted or not.

    Args:
        data: Folder of the data set, or its URL.
        base: Name or folder of a sentence-transformers model, or folder of an exported encoder.
        target: Folder to make for the adapted one.
        settings: Of the adaptation.
        say: Told one line of progress or warning at a time.
        watch: Stopwatch whose stages grow.
        writer: Of paraphrases, None for rules.

    Raises:
        InputError: , and OSError where the writer does not answer; then the target has not been written, and what was
            trained is kept beside it for the next attempt.
        EncoderError: , and OSError where the writer does not answer; then the target has not been written, and what was
            trained is kept beside it for the next attempt.
    """
    from taugate.adaptation.folder import check_target, write_encoder  # imports PyTorch

    check_target(target)
    with tempfile.TemporaryDirectory(prefix="taugate-") as spool:
        with watch.stage("read"):
            evaluation, queries = _read(data, settings, Path(spool), say)
        with watch.stage("export"):
            encoder = _load(base)
        # First, so that what the budget leaves for recipes is known.
        with watch.stage("measure"):
            asked = _paraphrase(queries.unseen, settings.seed, writer, watch)
            before = OtherTexts.encode(asked, _encode_with(encoder, watch))
        place = Workplace(base, target.absolute().parent / f".{target.name}.work")
        with sole_worker(place.work, say):
            found = learn_and_judge(evaluation, queries, encoder, settings, say, watch, place=place)
            with watch.stage("measure"):
                after = before
                if found.transformer is not None:
                    trained = OnnxEncoder.load(graph_of(found.transformer))
                    after = OtherTexts.encode(asked, _encode_with(trained, watch))
                if found.learned is not None:
                    after = after.through(found.learned.apply, found.learned.apply_to_documents)
                measures = found.comparison.measure(found.record.recipe, asked, before, after)
                record = found.record.model_copy(update={"measures": measures})
            with watch.stage("write"):
                write_encoder(found.transformer or model_folder(base), base, found.learned, record, target, encoder)
    return record


def learn_and_judge(  # noqa: PLR0913, PLR0917 (data, base and how)
    dataset: Dataset,
    queries: AdaptationQueries,
    encoder: OnnxEncoder,
    settings: AdaptationSettings,
    say: Callable[[str], None],
    watch: Stopwatch,
    steps: int | None = None,
    place: Workplace | None = None,
) -> Adaptation:
    """Encode, try the recipes and judge them; no encoder is written.

    Args:
        dataset: Its documents.
        queries: Of the three parts.
        encoder: The base.
        settings: As for `adapt`.
        say: As for `adapt`.
        watch: As for `adapt`.
        steps: Gradient steps of the adapter, None for as many as the budget allows.
        place: Where weights are trained, None for linear recipes alone.

    Raises:
        EncoderError: Where the base cannot be trained, InputError where the work cannot be written.
    """
    model = None if place is None else model_folder(place.base)
    # Before the corpus is encoded, which takes minutes.
    untrainable = None if model is None or place is None else why_untrainable(model, place.base, settings.recipe)
    pairs = _encode(dataset, queries, encoder, say, watch)
    with watch.stage("adapt"):
        if model is None or place is None:
            made = settings.steps if steps is None else steps
            allowed = (lambda: float(settings.seconds or 0) - watch.total) if made is None else made
            learned = LearnedRecipes.climb(
                pairs, settings.recipe, settings.seed, allowed, say, keep_documents=settings.keep_documents
            )
        else:
            shop = Workshop(pairs, encoder, place.base, model, place.work, settings.seed, watch)
            learned = climb(shop, settings, untrainable, say)
    with watch.stage("admit"):
        admission = Admission.decide(pairs, learned)
        record = _record(pairs, learned, admission, encoder, settings)
        comparison = EncoderComparison(queries.unseen, admission.trials, K, settings.seed)
        return Adaptation(learned.chosen.learned, learned.chosen.transformer, record, comparison)


def _load(base: str) -> OnnxEncoder:
    if document_encoder(base) is not None:
        raise EncoderError(
            f"encoder {base!r}: its queries have a map of their own, and its documents have not; give the encoder that "
            "it was adapted from"
        )
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
    """Read the evaluation split and the training split, if there is one, and divide their queries."""
    deciding = settings.eval_split
    if deciding is None:
        deciding = default_split(data, say, "admission is decided by", "--eval-split")
    named = [] if settings.split is None or settings.split == deciding else [settings.split]
    with local_folder(data, deciding, *named, optional=(TRAIN,) if settings.split is None else ()) as folder:
        split = TRAIN if settings.split is None and TRAIN in splits_in(folder) else settings.split
        spools = [spool / name for name in ("evaluation", "training")]
        for each in spools:
            each.mkdir()
        check_split(folder / qrels_of(deciding), "--eval-split")
        evaluation = read_dataset(folder, deciding, spools[0])
        for note in evaluation.notes:
            say(note)
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
    encoded = EncodedPairs.encode(dataset.documents, queries, encoder, cache, watch)
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
    return AdaptationRecord(
        recipe=learned.chosen.name,
        asked=settings.recipe,
        base=encoder.config.name,
        base_sha256=encoder.config.revision,
        pairs=pairs.queries.record,
        seeds={"documents": settings.seed, "pairs": settings.seed},
        budget=settings.budget,
        steps=learned.steps,
        whitening=learned.chosen.whitening,
        keeps_documents=settings.keep_documents,
        curve=learned.curve,
        admitted=admission.admitted,
        reason=admission.reason,
        evidence=pairs.queries.evidence,
        gain=admission.gain,
        recall=admission.recall,
        isotropy_before=IsotropyRecord(**asdict(isotropy(pairs.documents))),
        isotropy_after=IsotropyRecord(**asdict(isotropy(learned.chosen.documents))),
        gate=admission.gate,
        training=learned.training,
    )
