"""`taugate compare`: the table, the JSON, and equality with what a calibration measures."""

import json
from pathlib import Path

import pytest
import zaragoza_construction_faq

from taugate.cli import main as cli
from taugate.registry.catalog import find
from taugate.release.verify import verify_searchable
from taugate.retrieval.encoder.encoder import ExportedEncoder
from tests.embedding_server import embedding_server
from tests.fake_encoder import write_fake_encoder
from tests.own_vectors import with_vectors


@pytest.fixture(scope="module")
def data(sample: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_vectors(sample, encoder, tmp_path_factory.mktemp("data") / "own")[0]


@pytest.fixture(scope="module")
def worse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder that knows only the words of every tenth question."""
    texts = [entry["q"] for entry in zaragoza_construction_faq.load(lang="en")][::10]
    return write_fake_encoder(tmp_path_factory.mktemp("worse") / "worse", texts)


def test_compare_measures_what_calibrate_measures_and_chooses_the_best(
    data: Path, encoder: Path, worse: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare", str(data), str(worse), str(encoder), "vectors", "--lexical", "off", "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    first, second, third = compared["encoders"]
    assert {first["encoder"], second["encoder"]} == {str(encoder), "vectors"}
    assert third["encoder"] == str(worse)
    assert first["accuracy"] == second["accuracy"] > third["accuracy"]
    own = first if first["encoder"] == "vectors" else second
    assert (own["milliseconds"], own["bytes"]) == (None, 0)
    lower = {(pair["first"], pair["second"]): pair["accuracy"]["lower"] for pair in compared["differences"]}
    assert lower[str(encoder), str(worse)] > 0 > lower[first["encoder"], second["encoder"]]
    options = ["--encoder", str(encoder), "--lexical", "off", "--refuse", "off", "--max-loss", "0.02"]
    assert cli.main(["calibrate", str(data), "--releases", str(tmp_path), *options]) == 0
    metrics = verify_searchable(find(tmp_path)).metrics["heldout"]
    row = next(row for row in compared["encoders"] if row["encoder"] == str(encoder))
    assert metrics.roe is not None
    assert (row["coe"], row["roe"], row["kept"]) == (metrics.coe.mean, metrics.roe.mean, metrics.kept_fraction)
    for name in ("accuracy", "ndcg", "coe", "roe"):
        estimate = getattr(metrics, name)
        assert row["intervals"][name] == {"lower": estimate.lower, "upper": estimate.upper}


def test_compare_prints_a_table_of_encoders_and_one_of_differences(
    data: Path, encoder: Path, worse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare", str(data), str(encoder), str(worse), "--lexical", "off"]) == 0
    out, err = capsys.readouterr()
    encoders, differences = out.strip().split("\n\n")
    assert [line.split()[0] for line in encoders.splitlines()] == ["encoder", str(encoder), str(worse)]
    assert "kept at 2 %" in encoders.splitlines()[0]
    assert differences.splitlines()[1].startswith(f"{encoder} − {worse}")
    assert f"Choose {encoder}: its accuracy@5 is higher" in err
    assert f"taugate calibrate {data} --releases releases --encoder {encoder}" in err


def test_compare_takes_options_of_each_encoder_and_endpoints(
    data: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TAUGATE_CACHE", str(tmp_path / "cache"))
    loaded, cut = ExportedEncoder.load(encoder), f"{encoder} --max-len 8 --query-prompt 'zzz '"
    with embedding_server(lambda texts: loaded.encode(texts, "document")) as server:
        behind = f"openai:{server.url} --model m"
        command = ["compare", str(data), cut, str(encoder), behind, "--lexical", "off", "--json", "--yes"]
        assert cli.main(command) == 0
        assert len(server.texts) - len({*server.texts}) < 17 + 200  # of the probes, and of the times
        assert cli.main(["compare", str(data), behind, f"{behind} --max-length 9", "--lexical", "off"]) == 2
    compared, err = capsys.readouterr()
    rows = {row["encoder"]: row for row in json.loads(compared)["encoders"]}
    assert rows[behind]["accuracy"] == rows[str(encoder)]["accuracy"] > rows[cut]["accuracy"]
    assert rows[behind]["milliseconds"] > 0
    assert f"taugate calibrate {data} --releases releases --encoder" in err
    assert "add --yes to send the texts" in err


def test_option_that_is_not_of_an_encoder_is_bad_usage(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", str(data), "one --seed 3", "two"]) == 2
    assert "\"one --seed 3\": No such option '--seed'" in capsys.readouterr().err


@pytest.mark.parametrize("names", [["one"], ["one", "one"]])
def test_fewer_than_two_encoders_are_bad_usage(
    data: Path, names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare", str(data), *names]) == 2
    assert "give two or more encoders, each once" in capsys.readouterr().err


def test_compare_measures_prints_what_papers_measure(
    data: Path, encoder: Path, worse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compare", str(data), str(encoder), str(worse), "vectors", "--lexical", "off", "--measures"]
    assert cli.main([*command, "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    by_name = {row["encoder"]: row["measures"] for row in compared["encoders"]}
    assert by_name["vectors"]["familiarity"] is None
    for row in compared["encoders"]:
        assert [*row["measures"]["transformed"]] == ["none", "standardised", "whitened", "top components removed"]
        assert row["measures"]["transformed"]["none"]["accuracy"] == row["accuracy"]
    assert by_name["vectors"]["transformed"] == by_name[str(encoder)]["transformed"]
    whitened = by_name[str(encoder)]["transformed"]["whitened"]
    assert whitened["isotropy"]["i_b"] > by_name[str(encoder)]["transformed"]["none"]["isotropy"]["i_b"]
    everyday = {(pair["first"], pair["second"]): pair["everyday"] for pair in compared["differences"]}
    change = everyday[str(encoder), str(worse)]["ndcg"]
    assert change["after"] - change["before"] == pytest.approx(change["change"]["mean"])
    assert change["after"] == by_name[str(encoder)]["everyday"]
    assert cli.main(command) == 0
    tables = capsys.readouterr().out.strip().split("\n\n")
    assert [*compared["correlations"]][:2] == ["accuracy and COE", "accuracy and ROE"]
    assert [table.splitlines()[0].split("  ")[0] for table in tables[2:]] == [
        "correlation over the encoders",
        "accuracy; I_A, I_B, if vectors are",
        "encoder",
        "difference",
    ]
    width = compared["encoders"][0]["intervals"]["accuracy"]
    assert f"({width['upper'] - width['lower']:.3f})" in tables[0]
