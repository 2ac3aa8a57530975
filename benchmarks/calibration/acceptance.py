"""Measure the figures and the cost of one calibration, with the command itself, on public data sets.

Runs `taugate calibrate` with a cache of its own, cold, warm, and with a changed corpus, and writes the figures to
benchmarks/results/acceptance.md. Needs TAUGATE_DATA, about six minutes on 2 cores, and nothing else running beside it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytrec_eval

from benchmarks.results import RESULTS, machine, save, today
from taugate.release.layout import content_digest
from taugate.retrieval.encoder.encoder import ExportedEncoder
from taugate.retrieval.reader import load

REPORT = Path(__file__).resolve().parents[1] / "results" / "acceptance.md"
NEW_DOCUMENTS = 12


@dataclass
class CalibrationRun:
    """One calibration: its manifest, the folder of its release, and its log."""

    manifest: dict[str, Any]
    path: Path
    log: str

    def seconds(self, stage: str) -> float:
        """Return the seconds of a stage, or of the whole run for "took"."""
        pattern = r"took ([\d.]+) s" if stage == "took" else rf"[ (]{stage} ([\d.]+)"
        return float(self._said(pattern))

    @property
    def encoded(self) -> str:
        """The share of the data set that was encoded, as the log says it."""
        return self._said(r"encoded (.*? queries), ")

    def _said(self, pattern: str) -> str:
        found = re.search(pattern, self.log)
        if found is None:
            raise ValueError(f"the calibration did not log {pattern}")
        return found[1]

    @property
    def digest(self) -> str:
        """First digits of the content digest."""
        return content_digest(self.manifest)[:12]


def calibrate(data: Path, work: Path, *options: str) -> CalibrationRun:
    """Run the command in a process of its own, as an ops engineer would."""
    command = [sys.executable, "-m", "taugate", "calibrate", str(data), "--releases", str(work / "releases"), "--json"]
    environment = os.environ | {"TAUGATE_CACHE": str(work / "cache")}
    done = subprocess.run([*command, *options], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    result = json.loads(done.stdout)
    print(done.stderr.splitlines()[-1], flush=True)
    return CalibrationRun(result["manifest"], Path(result["path"]), done.stderr)


def changed_corpus(data: Path, work: Path) -> Path:
    """Copy a data set and rewrite some documents, as a corpus changes between two calibrations."""
    copy = shutil.copytree(data, work / data.name, copy_function=shutil.copyfile)
    corpus = copy / "corpus.jsonl"
    lines = corpus.read_text(encoding="utf-8").splitlines()
    step = len(lines) // NEW_DOCUMENTS
    for row in range(0, step * NEW_DOCUMENTS, step):
        document = json.loads(lines[row])
        lines[row] = json.dumps(document | {"text": document["text"] + " This paragraph was revised."})
    corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return copy


def trec_eval(data: Path, run: CalibrationRun, split: str, measure: str) -> float:
    """Measure the release over all answerable queries with trec_eval's own code."""
    release = load(run.path)
    qrels: dict[str, dict[str, int]] = {}
    for line in (data / "qrels" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, score = line.split("\t")
        qrels.setdefault(query, {})[document] = int(score)
    qrels = {query: judged for query, judged in qrels.items() if any(judged.values())}
    records = [json.loads(line) for line in (data / "queries.jsonl").open(encoding="utf-8")]
    asked = [record for record in records if record["_id"] in qrels]
    retriever = release.retriever
    assert isinstance(retriever.encoder, ExportedEncoder)  # noqa: S101 (for the type checker: a release has no other)
    vectors = retriever.encoder.encode([record["text"] for record in asked], "query")
    top = retriever.index.search(vectors, release.manifest.policy.k)
    results = {
        record["_id"]: {
            release.documents[position].id: float(score) for position, score in zip(positions, scores, strict=True)
        }
        for record, positions, scores in zip(asked, top.positions.tolist(), top.scores.tolist(), strict=True)
    }
    evaluated = pytrec_eval.RelevanceEvaluator(qrels, {measure}).evaluate(results)
    key = measure.replace(".", "_")
    return sum(each[key] for each in evaluated.values()) / len(evaluated)


def report(rows: list[tuple[str, str, str]], commands: list[str]) -> str:
    """Format the page: machine, commands, and a table of figures beside their targets."""
    lines = [
        "# One calibration: what it gives and what it costs",
        "",
        f"Written by `TAUGATE_DATA=… make acceptance` on {today()}; {machine()}.",
        "Encoder: all-MiniLM-L6-v2 exported to ONNX, float32. Seed 0. Commands, with a cache of their own:",
        "",
        "```",
        *commands,
        "```",
        "",
        "| what | figure | target |",
        "|---|---|---|",
        *(f"| {what} | {figure} | {target} |" for what, figure, target in rows),
        "",
        "Time in the encoder covers tokenizing and onnxruntime alone. Only the first calibration with a model imports PyTorch",
        "and exports the encoder; that counts as overhead.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure everything and write the page."""
    if "TAUGATE_DATA" not in os.environ:
        sys.exit("set TAUGATE_DATA to the folder with the public data sets")
    began, data = time.perf_counter(), Path(os.environ["TAUGATE_DATA"]).resolve()
    squad, scifact = data / "squad_v2_dev", data / "scifact"
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        options = ["--holdout", "0", "--lexical", "off", "--method", "bootstrap", "--refuse", "off"]  # as in the papers
        cold = calibrate(squad, work, *options)
        warm = calibrate(squad, work, *options)
        changed = calibrate(changed_corpus(squad, work), work, *options)
        shutil.rmtree(work / "cache")
        again = calibrate(squad, work, *options)
        science = calibrate(scifact, work, "--holdout", "0", "--lexical", "off", "--k", "10")
        accuracy = cold.manifest["metrics"]["calibration"]["accuracy"]
        ndcg = science.manifest["metrics"]["calibration"]["ndcg"]
        rows = [
            ("squad_v2_dev, accuracy@5 over all answerable queries", f"{trec_eval(squad, cold, 'test', 'success.5'):.4f}", ".888 ± .004"),
            ("squad_v2_dev, bootstrapped accuracy@5", f"{accuracy['mean']:.4f} ({accuracy['lower']:.3f}–{accuracy['upper']:.3f})", ".888 ± .004"),
            ("scifact, NDCG@10 over all test queries", f"{trec_eval(scifact, science, 'test', 'ndcg_cut.10'):.4f}", ".645 ± .003"),
            ("scifact, bootstrapped NDCG@10", f"{ndcg['mean']:.4f} ({ndcg['lower']:.3f}–{ndcg['upper']:.3f})", ""),
            ("1 − cosine between PyTorch and the exported graph, largest", f"{cold.manifest['encoder']['max_cosine_difference']:.1e}", "≤ 5e-9"),
            ("squad_v2_dev cold: seconds in total / in the encoder", f"{cold.seconds('took'):.1f} / {cold.seconds('encode'):.1f} = {cold.seconds('took') / cold.seconds('encode'):.2f}", "≤ 1.25"),
            ("of these, importing PyTorch and exporting", f"{cold.seconds('export'):.1f} s", ""),
            ("squad_v2_dev again, everything cached", f"{warm.seconds('took'):.1f} s; encoded {warm.encoded}", ""),
            (f"squad_v2_dev with {NEW_DOCUMENTS} documents revised", f"{changed.seconds('took'):.1f} s; encoded {changed.encoded}", "only what is new"),
            ("content digests: cold, cached, cold again", f"{cold.digest}, {warm.digest}, {again.digest}", "equal"),
        ]  # fmt: skip
    commands = [f"taugate calibrate $TAUGATE_DATA/squad_v2_dev --releases R {' '.join(options)} --json"]
    commands.append("taugate calibrate $TAUGATE_DATA/scifact --releases R --holdout 0 --lexical off --k 10 --json")
    text = report(rows, commands)
    REPORT.write_text(text, encoding="utf-8")
    save(RESULTS / "acceptance.json", "Acceptance", "make acceptance", time.perf_counter() - began, text)
    print(text)


if __name__ == "__main__":
    main()
