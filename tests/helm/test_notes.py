"""The notes show the next command, depending on what is missing."""

from tests.helm.rendered import KEYS, VARIANTS, at, render

URL = {"releases": {"url": "s3://bucket/team"}}


def test_notes_explain_first_release() -> None:
    notes = render(KEYS).notes
    assert "kubectl --namespace team logs deployment/shop-taugate" in notes
    assert "recalibration.job.enabled=true,recalibration.promotion.enabled=true,settings.reload_seconds=60" in notes
    assert "recalibration.data.existingClaim=CLAIM" in notes


def test_notes_with_data_start_job() -> None:
    notes = render(VARIANTS["object-storage"]).notes
    assert "--set recalibration.job.enabled=true \\\n" in notes
    assert "CLAIM" not in notes


def test_notes_for_signed_releases_need_key() -> None:
    notes = render(VARIANTS["trusted"]).notes
    wanted = "recalibration.job.enabled=true,recalibration.promotion.enabled=true"
    assert f"--set {wanted},recalibration.signingKey=SECRET \\\n" in notes


def test_notes_with_url_push_release() -> None:
    assert "taugate release push --releases DIR --to s3://bucket/team --promote" in render(KEYS, URL).notes


def test_notes_name_started_job() -> None:
    rendered = render(VARIANTS["recalibrate"], revision=4)
    assert f"job/{rendered.job['metadata']['name']}\n" in rendered.notes
    assert "This upgrade has started" not in render(KEYS).notes


def test_notes_search_with_and_without_key() -> None:
    notes = render(KEYS, at("service.port", 8080)).notes
    assert "kubectl --namespace team port-forward service/shop-taugate 8000:8080" in notes
    assert 'curl -H "Authorization: Bearer $KEY"' in notes
    assert "taugate key new" not in notes
    anyone = render(at("settings.allow_unauthenticated", True)).notes
    assert "Authorization" not in anyone
    assert "taugate key new" in anyone


def test_notes_explain_runbook_links() -> None:
    name = "metrics.prometheusRule.runbooksUrl"
    assert name in render(VARIANTS["all"]).notes
    assert name not in render(VARIANTS["all"], at(name, "https://wiki.example.com/taugate/runbooks")).notes
    assert name not in render(KEYS).notes


def test_notes_explain_helm_test() -> None:
    assert "helm test shop --namespace team" not in render(KEYS).notes
    assert "tests.key" in render(KEYS).notes
    assert "helm test shop --namespace team" in render(KEYS, at("tests.key", "search-key")).notes
