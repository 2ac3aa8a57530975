"""Numbers of generated and rejected queries, by reason, kept beside the queries in generated.json.

Calibration and adaptation copy them into their records, as they show how selective the generation was.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from taugate.errors import InputError
from taugate.ingestion.dataset.queries import Origin
from taugate.storage.files import atomic_write, read_bounded

FILE = "generated.json"
_MAX_BYTES = 1 << 16


@dataclass
class Losses:
    """Number of documents that gave no query, by reason.

    Attributes:
        empty: The document is too short for a crop, or the model wrote nothing.
        duplicate: The text repeats another query.
        example: The text repeats an example of the prompt.
        not_question: The text is not a question.
        round_trip: A search for the query does not return its document.
    """

    empty: int = 0
    duplicate: int = 0
    example: int = 0
    not_question: int = 0
    round_trip: int = 0


class Accounting(BaseModel):
    """One run of a generator.

    Attributes:
        model: Language model that wrote the queries, None for crops.
        kept: Number of queries written.
        lost: Number of documents that gave none, by reason.
    """

    model_config = ConfigDict(frozen=True)

    model: str | None = None
    kept: int = Field(ge=0)
    lost: dict[str, int]


_FILE = TypeAdapter(dict[Origin, Accounting])


def keep_accounting(data: Path, origin: Origin, kept: int, lost: Losses, model: str | None = None) -> None:
    """Replace the account of a generator; the caller holds `sole_writer`.

    Args:
        data: Folder of the data set.
        origin: Origin of the queries.
        kept: Number of queries written.
        lost: Number of documents that gave none, by reason.
        model: Language model that wrote them, None for crops.

    Raises:
        InputError: If the file is damaged.
    """
    account = Accounting(model=model, kept=kept, lost=asdict(lost))
    accounts: dict[Origin, Accounting] = {**read_accounting(data), origin: account}
    atomic_write(data / FILE, _FILE.dump_json(accounts, indent=2) + b"\n")


def read_accounting(data: Path) -> dict[Origin, Accounting]:
    """Read the last account of each generator, by the origin of its queries.

    Args:
        data: Folder of the data set.

    Raises:
        InputError: If the file is damaged.
    """
    path = data / FILE
    try:
        return _FILE.validate_json(read_bounded(path, _MAX_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        raise InputError(f"{path}: not the account that taugate queries wrote; remove it") from error
