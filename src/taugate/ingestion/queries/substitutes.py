"""Words that take the place of others in near misses: opposites, and things that few corpora mention, by language."""

# Only pairs that a question rarely survives: "with" and "without" may share an answer, "first" and "last" do not.
_OPPOSITES = {
    "English": "first/last earliest/latest largest/smallest biggest/smallest highest/lowest oldest/youngest "
    "longest/shortest best/worst maximum/minimum northern/southern increase/decrease increased/decreased "
    "increases/decreases",
    "German": "erste/letzte ersten/letzten größte/kleinste größten/kleinsten höchste/niedrigste höchsten/niedrigsten "
    "älteste/jüngste längste/kürzeste beste/schlechteste maximal/minimal maximale/minimale",
    "French": "premier/dernier première/dernière maximum/minimum maximal/minimal maximale/minimale meilleur/pire "
    "augmente/diminue augmenter/diminuer",
    "Spanish": "primer/último primero/último primera/última máximo/mínimo máxima/mínima mayor/menor mejor/peor "
    "aumenta/disminuye aumentar/disminuir",
    "Italian": "primo/ultimo massimo/minimo massima/minima maggiore/minore migliore/peggiore",
    "Portuguese": "primeiro/último primeira/última máximo/mínimo máxima/mínima maior/menor melhor/pior",
    "Dutch": "eerste/laatste grootste/kleinste hoogste/laagste oudste/jongste langste/kortste beste/slechtste "
    "maximaal/minimaal maximale/minimale",
}
# After each article, nouns that fit it: one of them replaces a noun that stands between the article and a word of
# _AFTER. Only articles that tell the gender of a noun in every case are listed.
_NOUNS = {
    "English": {
        "a the my": "bakery hospital museum bicycle hotel stadium cinema vineyard piano ferry lighthouse submarine "
        "glacier camel telescope volcano windmill parachute trombone cathedral",
    },
    "German": {
        "einen den": "Flughafen Weinberg Bahnhof Traktor Zoo Leuchtturm Vulkan Gletscher Fallschirm Papagei",
        "eine die": "Bäckerei Bibliothek Fähre Orgel Apotheke Kathedrale Windmühle Pyramide Trompete",
    },
    "French": {
        "un le du au": "cinéma musée vignoble stade piano volcan glacier chameau parachute",
        "une la": "boulangerie pharmacie bibliothèque gare cathédrale pyramide trompette montgolfière",
    },
    "Spanish": {
        "un el del al": "museo hotel estadio cine viñedo piano submarino volcán glaciar telescopio",
        "una la": "panadería farmacia biblioteca bicicleta catedral pirámide trompeta jirafa",
    },
    "Italian": {
        "un il del al nel": "museo vigneto cinema pianoforte ferry vulcano ghiacciaio telescopio faro",
        "una la della alla nella": "farmacia biblioteca bicicletta stazione cattedrale piramide tromba mongolfiera",
    },
    "Portuguese": {
        "um o do ao no": "museu hotel cinema vinhedo piano vulcão glaciar telescópio farol",
        "uma a da na": "padaria farmácia biblioteca bicicleta catedral pirâmide trombeta girafa",
    },
    "Dutch": {
        "een de": "bakkerij apotheek bioscoop wijngaard veerboot vuurtoren vulkaan gletsjer kathedraal piramide",
    },
}
# Prepositions after which a single word is a noun; the article belongs to the noun that replaces it.
_PREPOSITIONS = {
    "English": ("in for on at with about", "a"),
    "German": ("für", "einen"),
    "French": ("pour sur par avec dans", "un"),
    "Spanish": ("en para por con sobre", "un"),
    "Italian": ("per con su", "un"),
    "Portuguese": ("em para por com sobre", "um"),
    "Dutch": ("voor op met bij", "een"),
}
# Words that follow a noun and no adjective. "of" is none of them: before it, nouns name a property of something.
_AFTER = {
    "English": "in for on at by with from to and or is are be was were",
    "German": "in für auf bei mit aus und oder ist sind",
    "French": "dans pour sur par avec et ou est à en",
    "Spanish": "en para por con y o es a",
    "Italian": "in per con su e o è da a",
    "Portuguese": "em para por com e ou é a",
    "Dutch": "in voor op bij met en of is zijn",
}


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


def nouns_between(before: str, after: str, language: str | None) -> dict[str, str]:
    """Return nouns that may stand between two words, with their article if the words have none; empty if unsure.

    Args:
        before: The word before, in lower case.
        after: The word after in lower case, "" at the end of a question.
        language: Language of the text, as `QuestionRule` names it.

    Returns:
        Nouns, each with the text to insert.
    """
    if language not in _NOUNS or (after and after not in _AFTER[language].split()):
        return {}
    prepositions, article = _PREPOSITIONS[language]
    needed = article if before in prepositions.split() else before
    fitting = (nouns.split() for articles, nouns in _NOUNS[language].items() if needed in articles.split())
    return {noun: noun if needed == before else f"{article} {noun}" for nouns in fitting for noun in nouns}


def nouns_of(language: str | None) -> list[str]:
    """Return all nouns of a language that may replace others."""
    return [noun for nouns in _NOUNS.get(language or "", {}).values() for noun in nouns.split()]
