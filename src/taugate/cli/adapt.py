"""`taugate adapt`: adapt an encoder to a data set, and report whether it is shown to be better."""

import argparse
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import orjson

from taugate.adaptation.settings import AdaptationSettings
from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.cli.terminal.language_model import language_model
from taugate.cli.terminal.options import add_option, lexical_weight
from taugate.cli.terminal.output import say, say_labelled
from taugate.errors import InputError
from taugate.retrieval.release.adaptation import AdaptationRecord

if TYPE_CHECKING:
    from taugate.ingestion.queries.replies import LanguageModel

_NOT_ACCEPTED = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `taugate adapt`; its options are made from the fields of AdaptationSettings."""
    parser.description = (
        "Adapt an encoder to a data set: learn a linear map of its embeddings, and train its weights as far as the "
        "budget allows, from labelled queries or from crops of the documents. Queries about other documents "
        "decide whether the encoder is better. To resume after an interruption, repeat the command."
    )
    parser.add_argument(
        "data", metavar="DATA", help="folder, or URL in object storage, with corpus.jsonl, queries.jsonl, qrels/"
    )
    parser.add_argument(
        "--to", metavar="ENCODER", type=Path, required=True, help="folder to write; it must not exist yet"
    )
    parser.add_argument(
        "--encoder",
        metavar="NAME_OR_PATH",
        default=DEFAULT_ENCODER,
        help=f"sentence-transformers model, or exported encoder, to adapt (default: {DEFAULT_ENCODER})",
    )
    fields = AdaptationSettings.fields()
    add_option(parser, fields, "recipe")
    add_option(parser, fields, "budget", metavar="TIME_OR_STEPS")
    for name in ("split", "eval_split", "seed"):
        add_option(parser, fields, name)
    add_option(parser, fields, "keep_documents")
    add_option(parser, fields, "lexical", metavar="off|auto|W", type=lexical_weight, choices=None)
    add_option(parser, fields, "paraphrases")
    parser.add_argument("--endpoint", metavar="URL", help="base URL of that language model")
    parser.add_argument("--model", metavar="M", help="name of the model there, or path of a GGUF file")
    parser.add_argument("--json", action="store_true", help="print the encoder and its record as one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Adapt, and report.

    Args:
        arguments: The parsed command line.

    Returns:
        0, or 4 if the encoder is not accepted.

    Raises:
        TaugateError: If no encoder can be written.
    """
    # Imported here because it needs the extra `calibration`.
    from taugate.cli.terminal.display import ProgressDisplay

    names = AdaptationSettings.fields()
    settings = AdaptationSettings(**{name: getattr(arguments, name) for name in names if hasattr(arguments, name)})
    writer = _writer(arguments, settings)
    with ProgressDisplay() as job:
        with job.task("starting"):
            from taugate.adaptation.job import adapt  # loads scikit-learn, which takes seconds

        record = adapt(arguments.data, arguments.encoder, arguments.to, settings, job, writer)
    _report(record, arguments.data, arguments.to, job.total, as_json=arguments.json)
    return 0 if record.admitted else _NOT_ACCEPTED


def _writer(arguments: argparse.Namespace, settings: AdaptationSettings) -> "LanguageModel | None":
    """Return the language model that paraphrases, or None if rules do.

    Raises:
        InputError: If an option of language models is given with rules.
    """
    if settings.paraphrases != "rules":
        return language_model("--paraphrases", settings.paraphrases, arguments.endpoint, arguments.model)
    for name in ("endpoint", "model"):
        if getattr(arguments, name) is not None:
            raise InputError(f"--{name}: rules use no model; add --paraphrases local or --paraphrases endpoint ")
    return None


def _report(record: AdaptationRecord, data: str, target: Path, seconds: float, *, as_json: bool) -> None:
    """Print the path of the encoder to stdout, and the result to stderr."""
    value = {"encoder": str(target), "adaptation": record.model_dump()}
    sys.stdout.write(orjson.dumps(value).decode() + "\n" if as_json else f"{target}\n")
    sys.stdout.flush()
    from taugate.adaptation.forgetting import forgetting_words  # loads scikit-learn, as `run` does

    pairs, gain = record.pairs, record.gain
    source = {
        "labels": f"queries of the split {pairs.split}",
        "generated": f"generated queries of the split {pairs.split}",
        "crops": "crops of the documents",
        "labels and crops": f"queries of the split {pairs.split} and crops of the documents",
    }[pairs.source]
    recipe = f"{record.recipe} of queries alone" if record.keeps_documents else record.recipe
    rows = {
        "Recipe": f"{recipe}, learned from {pairs.train:,} {source} in {seconds:.0f} s",
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
        rows["Next"] = f"taugate calibrate {quote(data)} --releases releases --encoder {quote(str(target))}"
    say("")
    say_labelled(rows)
    if record.reason is not None:
        say(f"taugate: not accepted: {record.reason}. {target} is written for inspection")


def _points(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:+.1f}"  # never -0.0
