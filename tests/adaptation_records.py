"""Records of adaptations that were never made."""

from taugate.release.adaptation import (
    AdaptationGain,
    AdaptationRecord,
    BeforeAfter,
    PairsRecord,
    TrainingRecord,
    WhiteningRecord,
)
from taugate.release.evidence import Interval, IsotropyRecord
from taugate.release.measures import (
    Distances,
    EncoderRow,
    FamiliarityRecord,
    ForgettingRecord,
    MeasuresRecord,
    PairedChange,
    PowerLawRecord,
    SeparationRecord,
    SpectrumRecord,
)


def interval(mean: float, width: float = 0.04) -> Interval:
    return Interval(mean=mean, lower=mean - width / 2, upper=mean + width / 2)


def row(name: str, accuracy: float) -> EncoderRow:
    return EncoderRow(
        name=name,
        accuracy=interval(accuracy),
        ndcg=interval(accuracy - 0.1),
        coe=interval(0.9),
        roe=interval(0.05),
        tau=0.31,
        psi=85,
        accuracy_at_tau=interval(accuracy - 0.01),
        isotropy=IsotropyRecord(i_a=0.3, i_b=0.1),
    )


def measures(ndcg_change: float = -0.05) -> MeasuresRecord:
    change = interval(ndcg_change, 0.02)
    law = PowerLawRecord(beta=interval(30.5, 9), r_squared=0.9, p=0.17, first=372, last=381, whole=1.39)
    near, far = [0] * 100, [0] * 100
    near[40:44], far[55:60] = [10, 40, 40, 10], [20] * 5
    return MeasuresRecord(
        k=5,
        rows=[row("base", 0.7), row("whitening", 0.72), row("adapter", 0.75)],
        separation=SeparationRecord(
            before=Distances(mean=0.84, counts=near, general=0.8),
            after=Distances(mean=1.15, counts=far, general=1.0),
            moved_away=0.97,
        ),
        familiarity=FamiliarityRecord(
            before=0.93, after=0.88, queries=10, paraphrases=3, source="rules", writer="English"
        ),
        spectrum=SpectrumRecord(before=law, after=None),
        forgetting=ForgettingRecord(
            questions=168,
            accuracy=PairedChange(before=0.55, after=0.5, change=interval(-0.05, 0.08)),
            ndcg=PairedChange(before=0.76, after=0.76 + ndcg_change, change=change),
        ),
    )


def adaptation(
    found: MeasuresRecord | None, *, admitted: bool = True, training: TrainingRecord | None = None
) -> AdaptationRecord:
    return AdaptationRecord(
        recipe="adapter",
        asked="auto",
        base="base<b>model",
        base_sha256="0" * 64,
        pairs=PairsRecord(
            source="labels",
            split="train",
            train=300,
            validation=100,
            unseen=200,
            documents={"train": 10, "validation": 10, "unseen": 10},
        ),
        seeds={"documents": 0, "pairs": 0},
        budget="1m",
        steps=8,
        whitening=WhiteningRecord(centring=1, exponent=0.2),
        curve=[],
        admitted=admitted,
        reason=None if admitted else "NDCG@10 falls",
        evidence="human",
        gain=AdaptationGain(accuracy=interval(0.05), ndcg=interval(0.05)),
        recall=BeforeAfter(before=0.9, after=0.95),
        isotropy_before=IsotropyRecord(i_a=0.3, i_b=0.1),
        isotropy_after=IsotropyRecord(i_a=0.8, i_b=0.7),
        gate=[],
        training=training,
        measures=found,
    )
