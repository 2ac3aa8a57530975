"""Recognition of questions, in languages with and without a rule."""

import pytest

from taugate.data.questions import QuestionRule

TEXTS = {
    "English": "The threshold of a release is chosen by the calibration, and it is in the manifest for all to read.",
    "German": "Der Schwellenwert wird von der Kalibrierung gewählt und ist in dem Manifest für alle zu lesen.",
    "French": "Le seuil est choisi par la calibration et il est dans le manifeste pour les lecteurs, avec des preuves.",
    "Spanish": "El umbral se elige en la calibración y es parte del manifiesto para que los lectores lo vean.",
    "Italian": "La soglia è scelta con la calibrazione, e si legge nel manifesto che è per una sola versione dei dati.",
    "Portuguese": "O limiar é escolhido na calibração e está no manifesto, para que os leitores o vejam com as provas.",
    "Dutch": "De drempel wordt bij de kalibratie gekozen en is in het manifest te lezen, niet voor een enkele versie.",
    "Chinese": "阈值由校准选择,并写入清单,供所有人阅读。",
    "Japanese": "しきい値はキャリブレーションによって選ばれ、マニフェストに書かれます。",
    "Korean": "임계값은 보정으로 선택되며 매니페스트에 기록됩니다.",
    None: "Próg jest wybierany podczas kalibracji i zapisywany w manifeście wydania.",
}


@pytest.mark.parametrize("language", TEXTS, ids=str)
def test_corpus_language_is_recognized(language: str | None) -> None:
    rule = QuestionRule.for_texts([TEXTS[language]])
    assert rule.language == language
    assert rule.name.startswith(language or "unknown language: any text")


@pytest.mark.parametrize(
    ("language", "question", "other"),
    [
        ("English", "how is the threshold chosen", "The threshold is chosen by the calibration."),
        ("English", "In which year was Riga founded?", "In 1973 the fleet grew."),
        ("English", "What’s the threshold", "Describe the threshold"),
        ("German", "Wie wird der Schwellenwert gewählt", "Der Schwellenwert wird gewählt."),
        ("French", "Comment le seuil est-il choisi", "Le seuil est choisi."),
        ("Spanish", "¿Cómo se elige el umbral", "El umbral se elige."),
        ("Italian", "Come si sceglie la soglia", "La soglia è scelta."),
        ("Portuguese", "Qual é o limiar", "O limiar é escolhido."),
        ("Dutch", "Hoe wordt de drempel gekozen", "De drempel wordt gekozen."),
        ("Chinese", "阈值是怎样选择的", "阈值由校准选择。"),
        ("Chinese", "阈值由校准选择？", "写入清单。"),
        ("Japanese", "しきい値はどのように選ばれますか", "しきい値は選ばれます。"),
        ("Korean", "임계값은 어떻게 선택됩니까", "임계값은 보정으로 선택됩니다."),
    ],
)
def test_questions_are_distinguished_from_statements(language: str, question: str, other: str) -> None:
    rule = QuestionRule(language)
    assert rule.holds(question)
    assert not rule.holds(other)


@pytest.mark.parametrize(
    "text", ["Jak wybierany jest próg", "ما هو الحد؟", "โปรแกรมเลือกค่าอย่างไร", "Ποιο είναι το όριο;"]
)
def test_unknown_languages_lose_nothing(text: str) -> None:
    assert QuestionRule.for_texts([text]).holds(text)


def test_corpus_without_words_has_no_rule() -> None:
    assert QuestionRule.for_texts(["123", "%%%"]).language is None
    assert QuestionRule.for_texts([]).language is None
    assert not QuestionRule("English").holds("…")
