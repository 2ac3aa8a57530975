"""Runs a command of `taugate` in this process, and checks a calibration by what it prints and writes."""

import io
import re
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taugate.cli import main as cli
from tests.pairs.data import Workshop
from tests.pairs.factors import BY_NAME, FACTORS, Kind, Row

WRITTEN = {0, 3, 4, 5}  # exit codes after which there is a release


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: Its exit code; None if it ended with an unknown exception.
        out: What it printed.
        error: What it printed on stderr, or the exception.
    """

    code: int | None
    out: str
    error: str

    @property
    def last(self) -> str:
        """The last line of stderr."""
        return (self.error.strip().splitlines() or [""])[-1]


def command(*words: str) -> Ended:
    """Run a command in this process."""
    out, error = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(error):
            code: int | None = cli.main([*words])
    except Exception as failure:  # noqa: BLE001 (a traceback is what is looked for)
        return Ended(None, out.getvalue(), f"{error.getvalue()}\n{type(failure).__name__}: {failure}")
    return Ended(code, out.getvalue(), error.getvalue())


def option_words(row: Row, shop: Workshop) -> list[str]:
    """Return the options of a row as words of a command line."""
    words: list[str] = []
    for factor in FACTORS:
        value = row[factor.name]
        if factor.kind is Kind.OPTION and value is not None:
            name = f"--{factor.name.replace('_', '-')}"
            words += [name] if value == "" else [name, shop.filled(value)]
            words += ["--model", "words"] if value.startswith("openai:") else []
    return words


def calibrate(row: Row, shop: Workshop, releases: Path, data: Path, *, turned: bool = False) -> Ended:
    """Calibrate with the options of a row; `turned` gives them in another order."""
    words = option_words(row, shop)
    if turned:
        starts = [place for place, word in enumerate(words) if re.match("--[a-z]", word)]
        parts = [words[a:b] for a, b in zip(starts, [*starts[1:], len(words)], strict=True)]
        words = [word for part in reversed(parts) for word in part]
    return command("calibrate", str(data), "--releases", str(releases), "--json", "--force", "--yes", *words)


def _gate(manifest: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    return [record for record in manifest["gate"] if record["kind"] == kind]


def _policy(manifest: Mapping[str, Any], name: str) -> Any:
    return manifest["policy"].get(name)


def _second(manifest: Mapping[str, Any]) -> dict[str, Any]:
    second = manifest.get("second_stage")
    return second if isinstance(second, dict) else {}


def _certificates(manifest: Mapping[str, Any], name: str) -> list[Any]:
    return [certificate.get(name) for certificate in _policy(manifest, "certificates") or ()]


def _limits(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    return (manifest.get("refusal") or {}).get("limits") or {}


# What the manifest says of each option, for a value that is given.
RECORDED: dict[str, Callable[[Mapping[str, Any], str], bool]] = {
    "encoder": lambda m, v: bool(m["encoder"]["name"]),
    "policy": lambda m, v: v == "auto" or _policy(m, "kind") in {v, "none"},
    "method": lambda m, v: _policy(m, "method") == v,
    "tau": lambda m, v: _policy(m, "tau") == float(v),
    "refuse": lambda m, v: (m.get("refusal") or {}).get("rho") == (None if v == "off" else float(v)),
    "max_loss": lambda m, v: _policy(m, "max_loss") == float(v.split(",")[0])
    and ("," not in v or _policy(m, "kind") == "none" or len(_policy(m, "levels")) == 2),
    "metric": lambda m, v: _policy(m, "metric") == v,
    "guarantee": lambda m, v: _policy(m, "statement") == v,
    "confidence": lambda m, v: float(v) in {_policy(m, "confidence"), _limits(m).get("confidence")},
    "max_empty": lambda m, v: float(v) in {_policy(m, "max_empty"),
                                           (_limits(m).get("refused") or {}).get("asked")},
    "strata": lambda m, v: _policy(m, "kind") == "none" or m["strata"]["field"] == v.partition(".")[2],
    # A certificate that counts queries has nothing to cap.
    "count_at_most": lambda m, v: v in map(str, _certificates(m, "count_at_most"))
    or (v == "auto" and (any(_certificates(m, "count_at_most")) or "query" in _certificates(m, "unit"))),
    "max_answered": lambda m, v: _limits(m)["answered"]["asked"] == float(v),
    "labels": lambda m, v: m["labels"]["splits"] == v.split(","),
    "split": lambda m, v: m["data"]["split"] == v,
    "relevant_from": lambda m, v: m["data"]["relevant_from"] == int(v),
    "drawn": lambda m, v: m["evidence"]["drawn"] == v,
    "k": lambda m, v: _policy(m, "k") == int(v),
    "holdout": lambda m, v: m["bootstrap"]["holdout"] == float(v),
    "seed": lambda m, v: m["bootstrap"]["seed"] == int(v),
    "bootstraps": lambda m, v: m["bootstrap"]["bootstraps"] == int(v),
    "sample_size": lambda m, v: m["bootstrap"]["sample_size"] == int(v),
    "overlap_percentile": lambda m, v: m["bootstrap"]["overlap_percentile"] == float(v),
    "lexical": lambda m, v: (m.get("lexical") or {"weight": "off"})["weight"] == (v if v == "off" else float(v)),
    "projection": lambda m, v: bool(_gate(m, "projection")),
    "retention": lambda m, v: any(v in record["candidate"] for record in _gate(m, "projection")),
    "precision": lambda m, v: v == "auto" or bool(_gate(m, "precision") or m.get("skipped")),
    "index": lambda m, v: v == "auto" or bool(_gate(m, "index")),
    "rerank": lambda m, v: bool(_second(m) or _gate(m, "rerank")),
    "rerank_candidates": lambda m, v: v == "auto" or _second(m)["candidates"] == int(v),
    "margin": lambda m, v: {record["margin"] for record in m["gate"]} == {float(v)},
    "gate_confidence": lambda m, v: all(record["confidence"] < 0.95 for record in m["gate"]) and bool(m["gate"]),
    "query_prompt": lambda m, v: m["encoder"]["query_prompt"] == v,
    "document_prompt": lambda m, v: m["encoder"]["document_prompt"] == v,
    "max_length": lambda m, v: m["encoder"]["max_length"] == int(v),
    "similarity": lambda m, v: m["encoder"]["similarity"] == v,
    "dimensions": lambda m, v: m["encoder"]["dimension"] == int(v),
    "accept_vectors": lambda m, v: m["accepts_vectors"] is True,
}  # fmt: skip


_WORDS = {"similarity": "dot product"}  # of lines that speak of an option by another name


def dropped_in_silence(row: Row, manifest: Mapping[str, Any], said: str) -> list[str]:
    """Return the given options that neither the manifest nor a printed line speaks of."""
    silent = []
    for name, recorded in RECORDED.items():
        value = row[name]
        if value is None:
            continue
        try:
            if recorded(manifest, value):
                continue
        except (KeyError, TypeError, IndexError):
            pass
        words = (f"--{name.replace('_', '-')}", name.replace("_", " "), value, _WORDS.get(name))
        if not any(word and word in said for word in words):
            silent.append(f"{name} {value!r}: neither in the manifest nor in what is printed")
    return silent


def explains(ended: Ended, row: Row) -> list[str]:
    """Return the options of a row that the last line of a refusal names."""
    return [name for name in BY_NAME if f"--{name.replace('_', '-')}" in ended.last and row.get(name) is not None]
