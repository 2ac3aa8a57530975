"""Pairs of words with opposite meanings, by language: one in place of the other asks about something else."""

# Only pairs that a question rarely survives: "with" and "without" may share an answer, "first" and "last" do not.
_PAIRS = {
    "English": "before/after first/last earliest/latest largest/smallest biggest/smallest highest/lowest "
    "oldest/youngest longest/shortest best/worst maximum/minimum north/south northern/southern eastern/western "
    "east/west increase/decrease increased/decreased increases/decreases above/below won/lost",
    "German": "erste/letzte ersten/letzten größte/kleinste größten/kleinsten höchste/niedrigste höchsten/niedrigsten "
    "älteste/jüngste längste/kürzeste beste/schlechteste maximal/minimal maximale/minimale nördlich/südlich "
    "östlich/westlich",
    "French": "avant/après premier/dernier première/dernière maximum/minimum maximal/minimal maximale/minimale "
    "meilleur/pire nord/sud augmente/diminue augmenter/diminuer",
    "Spanish": "antes/después primer/último primero/último primera/última máximo/mínimo máxima/mínima mayor/menor "
    "mejor/peor norte/sur aumenta/disminuye aumentar/disminuir",
    "Italian": "primo/ultimo prima/dopo massimo/minimo massima/minima maggiore/minore migliore/peggiore nord/sud",
    "Portuguese": "antes/depois primeiro/último primeira/última máximo/mínimo máxima/mínima maior/menor melhor/pior "
    "norte/sul",
    "Dutch": "eerste/laatste grootste/kleinste hoogste/laagste oudste/jongste langste/kortste beste/slechtste "
    "maximaal/minimaal maximale/minimale",
}
_OPPOSITES: dict[str, dict[str, str]] = {}
for _language, _pairs in _PAIRS.items():
    _table = _OPPOSITES[_language] = {}
    for _pair in _pairs.split():
        _one, _, _other = _pair.partition("/")
        _table.setdefault(_one, _other)
        _table.setdefault(_other, _one)


def opposite(word: str, language: str | None) -> str | None:
    """Return the opposite of a word in lower case, or None if it is unknown.

    Args:
        word: The word.
        language: Language of the text, as `QuestionRule` names it.
    """
    return _OPPOSITES.get(language or "", {}).get(word)
