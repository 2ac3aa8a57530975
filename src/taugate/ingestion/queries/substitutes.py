"""Closed classes of words for near misses: opposites, words that ask for an amount, months and weekdays."""

# Only pairs that a question rarely survives: "with" and "without" may share an answer, a first event is often the last
# one, too, and a document that says what increases also says whether it decreases.
_OPPOSITES = {
    "English": "earliest/latest largest/smallest biggest/smallest highest/lowest oldest/youngest longest/shortest "
    "maximum/minimum northern/southern",
    "German": "größte/kleinste größten/kleinsten höchste/niedrigste höchsten/niedrigsten älteste/jüngste "
    "längste/kürzeste maximal/minimal maximale/minimale",
    "French": "maximum/minimum maximal/minimal maximale/minimale",
    "Spanish": "máximo/mínimo máxima/mínima mayor/menor",
    "Italian": "massimo/minimo massima/minima maggiore/minore",
    "Portuguese": "máximo/mínimo máxima/mínima maior/menor",
    "Dutch": "grootste/kleinste hoogste/laagste oudste/jongste langste/kortste maximaal/minimaal maximale/minimale",
}
# Beginnings of words that ask for an amount, which often holds for one year only.
_AMOUNTS = {
    "English": ("how many", "how much", "what percent", "what proportion", "what share", "what fraction"),
    "German": ("wie viel", "wieviel", "welcher anteil"),
    "French": ("combien", "quel pourcentage", "quelle part "),
    "Spanish": ("cuánt", "qué porcentaje", "qué proporción"),
    "Italian": ("quanto", "quanti ", "quanta", "quante", "quale percentuale", "che percentuale"),
    "Portuguese": ("quanto", "quanta ", "quantas", "que percentagem", "que porcentagem"),
    "Dutch": ("hoeveel", "welk percentage", "welk deel"),
}
# Months and weekdays of the languages that write them with a capital, in lower case.
_DATES = """
january february march april may june july august september october november december januar februar märz mai juni juli
oktober dezember monday tuesday wednesday thursday friday saturday sunday montag dienstag mittwoch donnerstag freitag
samstag sonntag
"""
DATES = frozenset(_DATES.split())


def opposite(word: str, language: str | None) -> str | None:
    """Return the opposite of a word in lower case, or None if it is unknown.

    Args:
        word: The word.
        language: Language of the text, as `QuestionRule` names it.
    """
    for pair in _OPPOSITES.get(language or "", "").split():
        one, _, other = pair.partition("/")
        if word in {one, other}:
            return other if word == one else one
    return None


def asks_amount(question: str, language: str | None) -> bool:
    """Return whether a question asks for an amount.

    Args:
        question: Text of the question.
        language: Language of the text, as `QuestionRule` names it.
    """
    text = f" {question.casefold().replace('¿', ' ')}"
    return any(f" {amount}" in text for amount in _AMOUNTS.get(language or "", ()))
