"""The contents of a releases directory: its releases, which is current or shadow, and each release in one row.

Reading takes no lock and verifies nothing, so that a list includes damaged releases and other versions: the code that
opens or promotes a release verifies it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import orjson

from taugate.errors import ReleaseError
from taugate.release import layout
from taugate.release.state import State, certified_loss, state_in_words
from taugate.storage.files import Json, read_bounded
from taugate.storage.folders import check_releases_exist

_MAX_LISTED = 5  # releases listed in an error; users usually look for one of the newest
_MIN_CHARACTERS = 4  # that name a release, as in git: fewer may be a typing error


def release_ids(releases: Path) -> list[str]:
    """Return the ids of all releases, oldest first; other entries are skipped."""
    check_releases_exist(releases)
    return sorted(entry.name for entry in releases.iterdir() if layout.is_release_id(entry.name) and entry.is_dir())


def find(releases: Path, name: str | None = None) -> Path:
    """Return the folder of a release, which is named by the release's id.

    Args:
        name: Id of the release, or the beginning of one as in `match_id`; None for the current release.

    Raises:
        ReleaseError: If there is no such release, or more than one.
    """
    if name is None:
        name = current_id(releases)
        if name is None:
            raise ReleaseError(
                f"{releases}: no release is current; run `taugate calibrate DATA --releases {releases}` first"
            )
    elif not layout.is_release_id(name):
        name = match_id(release_ids(releases), name, str(releases))
    if not (releases / name / layout.MANIFEST).is_file():
        raise ReleaseError(f"{releases}: holds no release {name!r}; it has {newest(release_ids(releases))}")
    return releases / name


def match_id(ids: Sequence[str], text: str, location: str) -> str:
    """Return the one id that begins with a text, or whose digest does.

    Args:
        ids: Ids of all releases, oldest first.
        text: Four characters or more.
        location: Where the releases are, for the error.
    """
    if len(text) < _MIN_CHARACTERS:
        raise ReleaseError(
            f"{location}: {text!r} is too short; give at least {_MIN_CHARACTERS} characters of an id; it has "
            f"{newest(ids)}"
        )
    matches = [name for name in ids if any(part.startswith(text) for part in (name, name.partition("-")[2]))]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise ReleaseError(
            f"{location}: {text!r} matches {len(matches)} releases: {newest(matches)}; give more of the id"
        )
    raise ReleaseError(f"{location}: holds no release {text!r}; it has {newest(ids)}")


def newest(ids: Sequence[str]) -> str:
    """List the newest of some releases, given oldest first, and the number of older ones, as text."""
    if not ids:
        return "no releases"
    older = len(ids) - _MAX_LISTED
    return ", ".join(ids[: -_MAX_LISTED - 1 : -1]) + (f" and {older} older" if older > 0 else "")


def current_id(releases: Path) -> str | None:
    """Return the id of the promoted release, None before the first promotion."""
    return _existing_id(releases, layout.CURRENT, "promote an existing release")


def shadow_id(releases: Path) -> str | None:
    """Return the id of the shadow release, None without one."""
    return _existing_id(releases, layout.SHADOW, "name an existing one with `taugate release shadow`, or give --none")


def pointed_id(releases: Path, pointer: str) -> str | None:
    """Return the id that a pointer names, even if the release does not exist; None if it names none."""
    try:
        name = read_bounded(releases / pointer, layout.POINTER_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return name if layout.is_release_id(name) else None


def _existing_id(releases: Path, pointer: str, remedy: str) -> str | None:
    path = releases / pointer
    try:
        name = read_bounded(path, layout.POINTER_BYTES).decode("ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ReleaseError(f"{path}: cannot be read as one line with a release id; {remedy}") from error
    if layout.is_release_id(name) and (releases / name / layout.MANIFEST).is_file():
        return name
    if pointed_id(releases, pointer) not in {None, name}:  # moved since it was read, and the old release was pruned
        return _existing_id(releases, pointer, remedy)
    raise ReleaseError(f"{path}: names {name!r}, which is not a release in {releases}; {remedy}")


def parent_of(releases: Path, name: str | None) -> str | None:
    """Return the id of the release that was current when a release was written, None if unknown."""
    parent = unverified_manifest(releases, name).get("parent")
    return parent if isinstance(parent, str) and layout.is_release_id(parent) else None


def erasure_source(releases: Path, name: str | None) -> str | None:
    """Return the id of the release that a release was derived from by erasing documents, None if it was not."""
    record = unverified_manifest(releases, name).get("erasure")
    source = record.get("release") if isinstance(record, dict) else None
    return source if isinstance(source, str) and layout.is_release_id(source) else None


def encoder_record(releases: Path, name: str | None) -> dict[str, Json]:
    """Return the manifest's record of a release's float32 query encoder, or of the retriever of a run."""
    # Empty if it cannot be read.
    manifest = unverified_manifest(releases, name)
    encoder = manifest.get("float32_encoder") or manifest.get("query_encoder") or manifest.get("encoder")
    encoder = encoder or manifest.get("retriever")
    return encoder if isinstance(encoder, dict) else {}


def scorer_record(releases: Path, name: str | None) -> dict[str, Json]:
    """Return the record of what scores a release's results: its second stage, else as `encoder_record`."""
    second = unverified_manifest(releases, name).get("second_stage")
    return second if isinstance(second, dict) else encoder_record(releases, name)


def calibration_state(releases: Path, name: str | None) -> State | None:
    """Return the state of a release's calibration, None if its manifest cannot be read."""
    # Manifests of earlier versions, without such a record, count as calibrated.
    manifest = unverified_manifest(releases, name)
    if not manifest:
        return None
    if manifest.get("withdrawn"):
        return "inherited"
    calibration = manifest.get("calibration")
    state = calibration.get("state") if isinstance(calibration, dict) else None
    return next((state_name for state_name in get_args(State) if state_name == state), "calibrated")


def unverified_manifest(releases: Path, name: str | None) -> dict[str, Json]:
    """Read a manifest as plain JSON, without any check; empty if it cannot be read or the name is None."""
    if name is None:
        return {}
    try:
        raw = orjson.loads(read_bounded(releases / name / layout.MANIFEST, layout.MANIFEST_BYTES))
    except (OSError, orjson.JSONDecodeError):
        return {}
    return raw if isinstance(raw, dict) else {}


@dataclass(frozen=True)
class ReleaseSummary:
    """The main facts of a release; each is None if the manifest does not have it."""

    release: str
    created: datetime | None
    state: str | None  # state in words, such as "certified 2 %"
    data: str | None
    split: str | None
    policy: str | None
    tau: float | None  # the policy's threshold
    lexical: float | None  # weight of the lexical part of the score, if it has one
    k: int | None  # number of documents retrieved for a query
    accuracy: float | None  # mean accuracy at K without a cut, on the held-out queries if there are any
    summary: str | None  # what is certified and checked, in two lines
    # what the release was made with, such as data and encoder, to compare with other releases
    basis: Mapping[str, Json]

    def differs_in(self, other: "ReleaseSummary") -> list[str]:
        """Return what was different when two releases were made, such as ["data", "rule"]."""
        return [name for name, value in self.basis.items() if value != other.basis[name]]

    def age(self, now: datetime) -> str:
        """Return the time since the release was written, in its largest unit, such as "3 h"; "–" if unknown."""
        # `now` must have a time zone.
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
        created=layout.creation_time(name),
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
