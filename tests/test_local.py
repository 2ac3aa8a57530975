"""`taugate.open` searches a release in this process and returns what POST /search returns."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import taugate
from taugate.errors import InputError, ReleaseError
from taugate.local import LocalRetriever
from taugate.registry.catalog import find
from tests.release.clones import clone
from tests.service_process import ServiceProcess

QUESTION = "Do I need a building permit for a garage?"


@pytest.fixture(scope="module")
def retriever(releases: Path) -> LocalRetriever:
    return taugate.open(releases)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"k": 3},
        {"threshold": 0.9},
        {"threshold": 0.9, "min_results": 2},
        {"filter": {"category": "bygglov"}},
        {"group_by": "document"},
    ],
    ids=str,
)
def test_search_equals_service(options: dict[str, object], retriever: LocalRetriever, service: ServiceProcess) -> None:
    reply = service.http.post("/search", json={"query": QUESTION, "explore": False, **options}).json()
    expected = {name: value for name, value in reply.items() if name not in {"drift", "query_id"}}
    assert drop_defaults(retriever.search(QUESTION, **options).model_dump(mode="json")) == expected


def certified(manifest: dict) -> None:
    manifest["policy"] |= {"statement": "high-probability", "max_loss": 0.02}


def adjusted(manifest: dict) -> None:
    certified(manifest)
    manifest["calibration"]["state"] = "adjusted"


def test_certified_loss_is_in_covered_replies_alone(releases: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(releases, tmp_path / "releases")
    with taugate.open(copy, clone(find(copy), 0, certified)) as retriever:
        reply = retriever.search(QUESTION)
        assert reply.certified is not None
        assert reply.certified.model_dump() == {"max_loss": 0.02, "confidence": 0.95}
        assert (reply.calibrated, reply.calibration) == (True, "calibrated")
        for uncovered in ({"k": 100}, {"threshold": 0.1}, {"filter": {"category": "bygglov"}}):
            assert retriever.search(QUESTION, **uncovered).certified is None


def test_adjusted_release_certifies_nothing(releases: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(releases, tmp_path / "releases")
    with taugate.open(copy, clone(find(copy), 0, adjusted)) as retriever:
        reply = retriever.search(QUESTION)
        assert (reply.calibrated, reply.calibration, reply.certified) == (False, "adjusted", None)


def drop_defaults(fields: dict) -> dict:
    """Leave out the fields that replies have only if they are true, or not null."""
    optional = {"truncated", "approximate", "explored", "refusal", "stage", "certified", "not_comparable"}
    optional |= {"parts", "matched_words", "first_stage_score"}  # of a result
    results = [
        {key: value for key, value in result.items() if value or key not in optional} for result in fields["results"]
    ]
    return {key: value for key, value in fields.items() if value or key not in optional} | {"results": results}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k: "),
        ({"min_results": 9}, "min_results: 9 is over k, which is 5"),
        ({"filter": {"nowhere": "x"}}, "no document has the field nowhere"),
        ({"filter": {"category": {"gte": 3}}}, "category"),
    ],
)
def test_bad_option_is_input_error(options: dict[str, object], message: str, retriever: LocalRetriever) -> None:
    with pytest.raises(InputError, match=message):
        retriever.search(QUESTION, **options)


def test_blank_query_is_input_error(retriever: LocalRetriever) -> None:
    with pytest.raises(InputError, match="a query needs text"):
        retriever.search(" \u200b")


def test_missing_release_is_release_error(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError):
        taugate.open(tmp_path)


def test_closed_retriever_allows_removal(releases: Path) -> None:
    with taugate.open(releases) as retriever:
        assert retriever.search(QUESTION).release == retriever.manifest.release_id
    retriever.close()


def test_import_loads_no_library() -> None:
    program = "import sys, taugate; print([name for name in ('faiss', 'numpy', 'fastapi') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_open_loads_no_web_framework(releases: Path) -> None:
    program = (
        f"import sys, taugate; taugate.open({str(releases)!r}); print('torch' in sys.modules, 'uvicorn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
