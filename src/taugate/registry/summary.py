"""A release in one row: what it was calibrated on, its threshold, its accuracy and its age.

Manifests are read as plain JSON and are not verified, so that a list shows damaged releases and other versions' too.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from taugate.registry.catalog import calibration_state, unverified_manifest


@dataclass(frozen=True)
class ReleaseSummary:
    """The main facts of a release; each is None where its manifest does not have it.

    Attributes:
        release: Its id.
        created: When it was written.
        state: Calibrated or provisional.
        data: Name of the data set and of the qrels file.
        split: Name of the data set and of the qrels file.
        policy: Kind of the rule that keeps results.
        tau: Its threshold.
        k: Number of documents retrieved for a query.
        accuracy: Mean accuracy at K without a cut, of the held-out queries where there are any.
    """

    release: str
    created: datetime | None
    state: str | None
    data: str | None
    split: str | None
    policy: str | None
    tau: float | None
    k: int | None
    accuracy: float | None

    def age(self, now: datetime) -> str:
        """Return the time since the release was written, in its largest unit, such as "3 h"; "–" where it is unknown.

        Args:
            now: With a time zone.
        """
        if self.created is None:
            return "–"
        seconds = max(0.0, (now - self.created).total_seconds())
        for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
            if seconds >= length:
                return f"{seconds // length:.0f} {unit}"
        return f"{seconds:.0f} s"


def summarize(releases: Path, name: str) -> ReleaseSummary:
    """Summarize a release; a manifest that cannot be read leaves all but the id and the time empty.

    Args:
        releases: The releases directory.
        name: The release's id, which holds the time.
    """
    manifest = unverified_manifest(releases, name)
    heldout = _number(manifest, "metrics", "heldout", "accuracy", "mean")
    return ReleaseSummary(
        release=name,
        created=_created(name),
        state=calibration_state(releases, name),
        data=_text(manifest, "data", "name"),
        split=_text(manifest, "data", "split"),
        policy=_text(manifest, "policy", "kind"),
        tau=_number(manifest, "policy", "tau"),
        k=int(k) if (k := _number(manifest, "policy", "k")) is not None else None,
        accuracy=heldout if heldout is not None else _number(manifest, "metrics", "calibration", "accuracy", "mean"),
    )


def _created(name: str) -> datetime | None:
    """Return the time in a release's id; None where it is no date."""
    try:
        return datetime.strptime(name.partition("-")[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def _text(manifest: object, *keys: str) -> str | None:
    found = _dig(manifest, *keys)
    return found if isinstance(found, str) else None


def _number(manifest: object, *keys: str) -> float | None:
    found = _dig(manifest, *keys)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def _dig(found: Any, *keys: str) -> Any:  # noqa: ANN401 (JSON that nobody has checked)
    """Follow keys into nested objects; None where one of them is not there."""
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found
