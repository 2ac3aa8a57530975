"""The notes tell the next command, by what is missing."""

from tests.helm.rendered import KEYS, VARIANTS, at, render

URL = {"releases": {"url": "s3://bucket/team", "volume": {"enabled": False}}}


def test_how_the_first_release_is_made() -> None:
    notes = render(KEYS).notes
    assert "kubectl --namespace team logs deployment/shop-taugate" in notes
    assert "recalibration.job.enabled=true,recalibration.promotion.enabled=true,settings.reload_seconds=60" in notes
    assert "recalibration.data.existingClaim=CLAIM" in notes


def test_with_data_only_the_job_is_missing() -> None:
    notes = render(VARIANTS["object-storage"]).notes
    assert "--set recalibration.job.enabled=true \\\n" in notes
    assert "CLAIM" not in notes


def test_what_only_signed_releases_need() -> None:
    notes = render(VARIANTS["trusted"]).notes
    wanted = "recalibration.job.enabled=true,recalibration.promotion.enabled=true"
    assert f"--set {wanted},recalibration.signingKey.existingSecret=SECRET \\\n" in notes


def test_with_a_url_releases_are_pushed() -> None:
    assert "taugate release push --releases DIR --to s3://bucket/team --promote" in render(KEYS, URL).notes


def test_what_this_upgrade_has_started() -> None:
    assert "job/shop-taugate-calibrate-4" in render(VARIANTS["recalibrate"], revision=4).notes
    assert "This upgrade has started" not in render(KEYS).notes


def test_how_to_search_with_a_key_and_without() -> None:
    notes = render(KEYS, at("service.port", 8080)).notes
    assert "kubectl --namespace team port-forward service/shop-taugate 8000:8080" in notes
    assert 'curl -H "Authorization: Bearer $KEY"' in notes
    assert "taugate key new" not in notes
    anyone = render(at("settings.allow_unauthenticated", True)).notes
    assert "Authorization" not in anyone
    assert "taugate key new" in anyone


def test_what_makes_links_of_the_paths_of_runbooks() -> None:
    name = "metrics.prometheusRule.runbooksUrl"
    assert name in render(VARIANTS["all"]).notes
    assert name not in render(VARIANTS["all"], at(name, "https://wiki.example.com/taugate/runbooks")).notes
    assert name not in render(KEYS).notes


def test_how_to_ask_whether_it_answers() -> None:
    assert "helm test shop --namespace team" not in render(KEYS).notes
    assert "tests.key.existingSecret" in render(KEYS).notes
    assert "helm test shop --namespace team" in render(KEYS, at("tests.key.existingSecret", "search-key")).notes
