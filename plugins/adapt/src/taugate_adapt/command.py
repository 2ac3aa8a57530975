"""`taugate adapt`: adapt an encoder to a data set, and report whether it is shown to be better."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.cli.terminal.display import ProgressDisplay
from taugate.cli.terminal.options import LEXICAL, Appearance, AsJson, Data, ModelOptions, command_of, option, part
from taugate.cli.terminal.output import print_result, say, say_labelled
from taugate.release.adaptation import AdaptationRecord, PairsRecord, RerankerAdaptation
from taugate_adapt.settings import AdaptationSettings

if TYPE_CHECKING:
    from taugate.data.generation.language_model import LanguageModel

_NOT_ACCEPTED = 4
_SCORES = {"rerank": "cross-encoder", "late-interaction": "similarity of token vectors"}


@dataclass(frozen=True, kw_only=True)
class AdaptOptions(ModelOptions, AdaptationSettings):
    """The options of `taugate adapt`: the settings, and what to adapt."""

    data: Data
    to: Annotated[Path, Appearance("ENCODER")] = Field(description="folder to write; it must not exist yet")
    encoder: str = option(DEFAULT_ENCODER, "sentence-transformers model, or exported encoder, to adapt", "NAME_OR_PATH")
    as_json: AsJson = False

    def writer(self) -> "LanguageModel | None":
        """Return the language model that paraphrases, or None if rules do."""
        if self.paraphrases != "rules":
            return self.language_model("--paraphrases", self.paraphrases)
        part(ModelOptions, self).refuse_model("rules use no model; add --paraphrases local or --paraphrases endpoint")
        return None


def run(options: AdaptOptions) -> int:
    """Adapt an encoder to a data set, and measure whether it is better.

    Learn a linear map of its embeddings, and train its weights as far as the budget allows, from labelled queries or
    from crops of the documents. Queries about other documents decide whether the encoder is better. To resume after
    an interruption, repeat the command.
    """
    settings, writer = part(AdaptationSettings, options), options.writer()
    with ProgressDisplay() as job:
        with job.task("starting"):
            from taugate_adapt.job import adapt  # loads scikit-learn, which takes seconds

        if options.stage != "encoder":
            from taugate_adapt.reranker import adapt_reranker  # imports PyTorch

            trained = adapt_reranker(options.data, options.encoder, options.to, settings, job)
            _report_reranker(trained, options, job.total)
            return 0 if trained.admitted else _NOT_ACCEPTED
        record = adapt(options.data, options.encoder, options.to, settings, job, writer)
    _report(record, options, job.total)
    return 0 if record.admitted else _NOT_ACCEPTED


def _report(record: AdaptationRecord, options: AdaptOptions, seconds: float) -> None:
    """Print the path of the encoder to stdout, and the result to stderr."""
    target = options.to
    print_result({"encoder": str(target), "adaptation": record.model_dump()} if options.as_json else target)
    from taugate.calibration.comparison.measures import forgetting_words  # loads scikit-learn, as `run` does

    pairs, gain = record.pairs, record.gain
    recipe = f"{record.recipe} of queries alone" if record.keeps_documents else record.recipe
    rows = {
        "Recipe": f"{recipe}, learned from {_source(pairs)} in {seconds:.0f} s",
        "Gain": f"NDCG@10 {_points(gain.ndcg.mean)} points ({_points(gain.ndcg.lower)} to {_points(gain.ndcg.upper)}), "
        f"accuracy {_points(gain.accuracy.mean)} ({_points(gain.accuracy.lower)} to {_points(gain.accuracy.upper)})",
        "Recall": f"recall@100 {record.recall.before:.3f} before, {record.recall.after:.3f} after",
        "Evidence": f"{pairs.unseen:,} unseen queries about documents held out from training",
    }
    if record.lexical_weight is not None:
        lexical = record.lexical_weight
        rows["Score"] = f"cosine + {lexical.before:g} · lexical share before, cosine + {lexical.after:g} · share after"
    if record.training is not None:
        stages = [f"{stage.stage} {stage.steps} steps of {stage.batch}" for stage in record.training.stages]
        weight = record.training.merge_weight
        merged = [] if weight in {None, 1.0} else [f"{weight:g} of the trained weights in the encoder"]
        rows["Training"] = "; ".join([*stages, *merged]) or "none; see the warnings above"
    if record.measures is not None:
        rows["General"] = forgetting_words(record.measures.forgetting, unmerged=record.unmerged)
    if record.evidence == "generated":
        rows["Evidence"] += "; all of them generated"
    if record.admitted:
        rows["Next"] = f"taugate calibrate {quote(options.data)} --releases releases --encoder {quote(str(target))}"
    _say_result(rows, record.reason, target)


def _report_reranker(record: RerankerAdaptation, options: AdaptOptions, seconds: float) -> None:
    """Print the path of the second stage to stdout, and the result to stderr."""
    target = options.to
    print_result({"reranker": str(target), "adaptation": record.model_dump()} if options.as_json else target)
    from taugate.calibration.acceptance.better_lists import separation_in_words  # loads scikit-learn

    gain, pairs, training = record.gate.ndcg.loss, record.pairs, record.training
    also = f" and {record.unanswerable:,} unanswerable ones" if record.unanswerable else ""
    rows = {
        "Training": f"{training.steps:,} steps of {training.batch} from {_source(pairs)}{also} in {seconds:.0f} s",
        "Gain": f"NDCG@10 {_points(-gain.mean)} points ({_points(-gain.upper)} to {_points(-gain.lower)}) over the "
        "first stage",
        "Score": f"{_SCORES[training.stage]} + {record.first_stage_weight:.3g} · score of the first stage",
        "Evidence": f"{record.gate.n:,} unseen queries about documents held out from training"
        + ("; all of them generated" if record.evidence == "generated" else ""),
    }
    if record.separation is not None:
        rows["Unanswerable"] = separation_in_words(record.separation)
    if record.admitted:
        rows["Next"] = (
            f"taugate calibrate {quote(options.data)} --releases releases --encoder {quote(options.encoder)} --rerank "
            f"auto:{quote(str(target))}"
        )
    _say_result(rows, record.reason, target)


def _say_result(rows: dict[str, str], reason: str | None, target: Path) -> None:
    say("")
    say_labelled(rows)
    if reason is not None:
        say(f"taugate: not accepted: {reason}. {target} is written for inspection")


def _source(pairs: PairsRecord) -> str:
    """Return the number of training queries and where they come from."""
    source = {
        "labels": f"queries of the split {pairs.split}",
        "generated": f"generated queries of the split {pairs.split}",
        "crops": "crops of the documents",
        "labels and crops": f"queries of the split {pairs.split} and crops of the documents",
    }[pairs.source]
    return f"{pairs.train:,} {source}"


def _points(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:+.1f}"  # never -0.0


_KEYS = (*("eval_split", "relevant_from", "seed", "keep_documents"), *("lexical", "paraphrases", "endpoint", "model"))
command = command_of(
    "adapt",
    run,
    AdaptOptions,
    keys=_KEYS,
    budget=Appearance("TIME_OR_STEPS"),
    relevant_from=Appearance("GRADE"),
    lexical=LEXICAL,
)
