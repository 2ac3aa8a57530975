"""A release in one row: its data set, threshold, accuracy, age, summary, and what differs from another release.

Manifests are read as plain JSON without verification, so that a list includes damaged releases and other versions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from taugate.registry.catalog import unverified_manifest
from taugate.retrieval.release.layout import creation_time
from taugate.retrieval.release.state import certified_loss, state_in_words
from taugate.storage.json_values import Json


@dataclass(frozen=True)
class ReleaseSummary:
    """The main facts of a release; each is None if the manifest does not have it.

    Attributes:
        release: Id of the release.
        created: When it was written.
        state: State in words, such as "certified 2 %".
        data: Name of the data set.
        split: Name of the qrels file.
        policy: Kind of the policy.
        tau: The policy's threshold.
        lexical: Weight of the lexical part of the score, if it has one.
        k: Number of documents retrieved for a query.
        accuracy: Mean accuracy at K without a cut, on the held-out queries if there are any.
        summary: What is certified and checked, in two lines.
        basis: What the release was made with, such as data and encoder, to compare with other releases.
    """

    release: str
    created: datetime | None
    state: str | None
    data: str | None
    split: str | None
    policy: str | None
    tau: float | None
    lexical: float | None
    k: int | None
    accuracy: float | None
    summary: str | None
    basis: Mapping[str, Json]

    def differs_in(self, other: "ReleaseSummary") -> list[str]:
        """Return what was different when two releases were made, such as ["data", "rule"]."""
        return [name for name, value in self.basis.items() if value != other.basis[name]]

    def age(self, now: datetime) -> str:
        """Return the time since the release was written, in its largest unit, such as "3 h"; "–" if unknown.

        `now` must have a time zone.
        """
        if self.created is None:
            return "–"
        seconds = max(0.0, (now - self.created).total_seconds())
        for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
            if seconds >= length:
                return f"{seconds // length:.0f} {unit}"
        return f"{seconds:.0f} s"


def summarize(releases: Path, name: str) -> ReleaseSummary:
    """Summarize a release; if its manifest cannot be read, only the id and the time, which is part of it, are set."""
    manifest = unverified_manifest(releases, name)
    heldout = _number(manifest, "metrics", "heldout", "accuracy", "mean")
    return ReleaseSummary(
        release=name,
        created=creation_time(name),
        state=state_of(manifest) if manifest else None,
        data=_text(manifest, "data", "name"),
        split=_text(manifest, "data", "split"),
        policy=_text(manifest, "policy", "kind"),
        tau=_number(manifest, "policy", "tau"),
        lexical=_number(manifest, "lexical", "weight"),
        k=int(k) if (k := _number(manifest, "policy", "k")) is not None else None,
        accuracy=heldout if heldout is not None else _number(manifest, "metrics", "calibration", "accuracy", "mean"),
        summary=_text(manifest, "summary"),
        basis={
            "data": _dig(manifest, "data", "sha256"),
            "encoder": _dig(manifest, "encoder", "sha256"),
            "K": _dig(manifest, "policy", "k"),
            "rule": [_dig(manifest, "policy", name) for name in ("kind", "method", "max_loss")],
            "lexical": _dig(manifest, "lexical", "weight"),
            "index": _dig(manifest, "index", "kind"),
        },
    )


def state_of(manifest: object) -> str:
    """Return the state in words of a manifest as plain JSON; without a record of it, a release is calibrated."""
    state, statement = _text(manifest, "calibration", "state") or "calibrated", _text(manifest, "policy", "statement")
    tau, max_loss, confidence = (_number(manifest, "policy", field) for field in ("tau", "max_loss", "confidence"))
    return state_in_words(state, certified_loss(state, statement, tau, max_loss, confidence))


def _text(manifest: object, *keys: str) -> str | None:
    value = _dig(manifest, *keys)
    return value if isinstance(value, str) else None


def _number(manifest: object, *keys: str) -> float | None:
    value = _dig(manifest, *keys)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _dig(value: Any, *keys: str) -> Any:  # noqa: ANN401 (unverified JSON)
    """Follow keys into nested objects; None if one is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
