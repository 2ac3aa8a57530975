"""What happens to a service that was calibrated on squad_v2_dev."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from onnxruntime.quantization import QuantType, quantize_dynamic
from traffic import Draw, Pool, asked, encoded, heldout, mixed, released

from retrieval.encoder import MODEL, OnnxEncoder
from retrieval.release.reader import Release
from retrieval.retriever import Retriever

SET = "squad_v2_dev"
QUIET_SETS = (SET, "pubmedqa_labelled", "covidqa_chunks")


@dataclass(frozen=True)
class Scenario:
    """most: queries within which an alarm is wanted; 0 where none is: canaries are for the encoder."""

    name: str
    most: int
    draw: Draw


def usual(data: Path, name: str, work: Path) -> tuple[Release, Pool]:
    """A release and the traffic that it was calibrated for: queries that were held out."""
    release = released(data, name, work)
    return release, Pool.of(encoded([*heldout(data, name, release)], release, work / f"{name}.npy"), release)


def scenarios(data: Path, work: Path) -> list[Scenario]:
    """Each with what the traffic is from its beginning on."""
    release, ordinary = usual(data, SET, work)

    def asks(name: str) -> Pool:
        return Pool.of(encoded(asked(data, name), release, work / f"{name}-all.npy"), release)

    own = encoded([*heldout(data, SET, release)], release, work / f"{SET}.npy")
    elsewhere = released(data, "squadshifts_new_wiki", work).retriever.index
    strange = asks("ood_queries")
    return [
        Scenario("questions of squadshifts_reddit", 300, asks("squadshifts_reddit").draw),
        Scenario("ood_queries", 100, strange.draw),
        Scenario("10 % ood_queries among the others", 3000, mixed(ordinary, strange, 0.1)),
        Scenario("2 % ood_queries among the others", 0, mixed(ordinary, strange, 0.02)),
        Scenario("corpus of squadshifts_new_wiki, old τ", 500, Pool.of(own, release, elsewhere).draw),
        Scenario("encoder in int8 that the gate refuses", 0, _int8(data, release, work).draw),
    ]


def _int8(data: Path, release: Release, work: Path) -> Pool:
    """Queries by an encoder whose every weight matrix has one scale, which costs 1.2 points of accuracy@5."""
    coarse = coarse_encoder(release, work)
    own = replace(release, retriever=Retriever(coarse, release.retriever.index, release.retriever.policy))
    vectors = encoded([*heldout(data, SET, release)], own, work / f"{SET}-int8.npy")
    return Pool.of(vectors, release)


def coarse_encoder(release: Release, work: Path) -> OnnxEncoder:
    """The encoder of a release, quantised per tensor."""
    source, target = _folder(release), work / "int8-per-tensor"
    if not target.is_dir():
        shutil.copytree(source, target)
        quantize_dynamic(str(source / MODEL), str(target / MODEL), weight_type=QuantType.QInt8)
    return OnnxEncoder.load(target)


def _folder(release: Release) -> Path:
    encoder = release.retriever.encoder
    if not isinstance(encoder, OnnxEncoder):
        raise TypeError("the release has no encoder of onnxruntime")
    return encoder.folder
