"""Edits a release and updates all its digests, to count which edits check_certificate.py and `release check` find."""

# ruff: noqa: ANN401 (JSON of any form)

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.certificate.library import recomputed
from taugate.errors import InputError
from taugate.evidence.drawn import recompute_drawn
from taugate.release.check_certificate import derive, recompute, unequal
from taugate.release.layout import EVIDENCE, MANIFEST, content_digest
from taugate.release.verify import verify

KINDS = ("label", "count", "score", "τ or ρ", "bound")
_COUNTS = {"queries", "units", "refused", "uncertified", "answers", "lost", "answerable", "unanswerable"}
_BOUNDS = {"lower", "upper", "bound", "loss", "mean"}


@dataclass(frozen=True)
class Edit:
    """An edit of a release.

    Attributes:
        kind: One of KINDS.
        place: What was edited.
        by_script: The first figure that the script names; None if it finds nothing.
        by_command: If it finds nothing, the same for what `taugate release check` adds, which draws.
        changes: If neither finds it, a stated figure that it changes by Taugate's own code; None if it changes none.
    """

    kind: str
    place: str
    by_script: str | None
    by_command: str | None
    changes: str | None


def edit(release: Path, kind: str, rng: random.Random, scratch: Path) -> Edit:
    """Copy a release, edit it once, make its digests fit, and look at it."""
    raw = json.loads((release / MANIFEST).read_bytes())
    evidence = json.loads((release / EVIDENCE).read_bytes())
    labelled = kind in ("label", "score")
    derived: Any = None if labelled else derive(raw, evidence)  # type: ignore[no-untyped-call]  # read beside a page
    place = _edit_evidence(evidence, kind, rng) if labelled else _edit_manifest(raw, derived, kind, rng)
    copy = _written(release, raw, evidence, scratch)
    manifest, stated = verify(copy), {**raw, "roles": evidence["answerable"]["role"]}
    by_script = next(iter(recompute(copy)[1]), None)
    by_command, changes = None, None
    if by_script is None:
        by_command = next(unequal("manifest", recompute_drawn(evidence, manifest), stated), None)
    if by_script is None and by_command is None:  # by a second opinion, nothing that is stated changes
        try:
            changes = next(unequal("manifest", recomputed(copy, manifest), stated), None) if labelled else place
        except InputError as error:  # nothing can be calibrated on these labels
            changes = str(error)
    shutil.rmtree(copy)
    return Edit(kind, place, by_script, by_command, changes)


def _edit_evidence(evidence: Any, kind: str, rng: random.Random) -> str:
    """Change a grade or a score of one query or question."""
    own = evidence["answerable"]
    row = rng.randrange(len(own["role"]))
    if kind == "label":
        rank = rng.randrange(len(own["grades"][row]))
        own["grades"][row][rank] = int(own["grades"][row][rank] < 1)
        return f"grade of result {rank + 1} of query {row}"
    part = rng.choice(["answerable", "questions"])
    if part == "questions" and evidence["questions"]:
        kind = rng.choice(sorted(evidence["questions"]))
        scores = evidence["questions"][kind]["refusal"]
        row = rng.randrange(len(scores))
        scores[row] += rng.choice([-0.2, 0.2])
        return f"score of question {row} of {kind}"
    change = rng.choice([-0.2, 0.2])
    for name in ("scores", "refusal", "relevance"):
        if own[name] is not None:
            value = own[name][row]
            own[name][row] = [one + change for one in value] if isinstance(value, list) else value + change
    return f"scores of query {row}"


def _edit_manifest(raw: Any, derived: Any, kind: str, rng: random.Random) -> str:
    """Change a number that the release states."""
    places = [
        path for path in _leaves(derived)
        if (path[-1] in ("tau", "rho") if kind == "τ or ρ" else path[-1] in (_COUNTS if kind == "count" else _BOUNDS))
    ]  # fmt: skip
    path = rng.choice(places)
    record = raw
    for name in path[:-1]:
        record = record[name]
    value = record[path[-1]]
    record[path[-1]] = value + rng.choice([-1, 1]) if isinstance(value, int) else value + rng.choice([-1e-3, 1e-3])
    return ".".join(map(str, path))


def _leaves(derived: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    pairs = derived.items() if isinstance(derived, dict) else enumerate(derived) if isinstance(derived, list) else ()
    for name, value in pairs:
        yield from _leaves(value, (*path, name))
    if isinstance(derived, int | float) and not isinstance(derived, bool):
        yield path


def _written(release: Path, raw: Any, evidence: Any, scratch: Path) -> Path:
    """Write the edited release with digests that fit; its other files are links."""
    content = json.dumps(evidence).encode()
    raw["files"][EVIDENCE] = {"sha256": sha256(content).hexdigest(), "bytes": len(content)}
    name = f"{release.name[:17]}{content_digest(raw)[:12]}"
    raw["release_id"], copy = name, scratch / name
    shutil.copytree(release, copy, copy_function=lambda source, to: Path(to).hardlink_to(source))
    for name, written in ((EVIDENCE, content), (MANIFEST, json.dumps(raw).encode())):
        (copy / name).unlink()
        (copy / name).write_bytes(written)
    return copy
