"""Base of the calibration's settings: frozen records with validated fields, whose errors name the option."""

from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from taugate.errors import InputError

T = TypeVar("T")


@plain_dataclass(frozen=True)
class Advice:
    """How to correct an invalid value; part of the field's annotation."""

    text: str  # what to give instead
    option: str | None = None  # the option on the command line, None for the one named after the field


def _file_name(split: str) -> str:
    if not split or "/" in split or split in {".", ".."}:
        raise ValueError("not a file name")
    return split


SplitName = Annotated[
    Annotated[str, AfterValidator(_file_name)] | None, Advice("give the name of a file in qrels/, without .tsv")
]


RelevantFrom = Annotated[
    Annotated[int, Field(ge=1)] | None, Advice("give the lowest grade of the qrels that answers, 1 or more")
]
RELEVANT_FROM = "lowest grade of the qrels that answers a query (default: 1); lower ones still gain in NDCG"


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Options:
    """A group of settings; `dataclasses.replace` makes a changed copy.

    Each field is declared with `Field(default=…, description=…)`, bounds, and an `Advice` for values out of bounds. The
    description is also the help text on the command line. The constructor raises InputError for an invalid value.
    """

    @model_validator(mode="wrap")
    @classmethod
    def _raise_input_error(cls, values: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:  # noqa: ANN401
        """Replace a validation error by an InputError with the advice for the first invalid value."""
        try:
            return validate(values)
        except ValidationError as error:
            raise InputError(_message(cls.fields(), error)) from error

    @classmethod
    def fields(cls) -> Mapping[str, FieldInfo]:
        """Return the declaration of each field, by name."""
        declared: Mapping[str, FieldInfo] = cls.__pydantic_fields__  # type: ignore[attr-defined]  # set by the decorator
        return declared

    @classmethod
    def taken_from(cls, values: dict[str, Any]) -> Self:
        """Build the settings from the values that are named after a field, and take these values away."""
        return cls(**{name: values.pop(name) for name in cls.fields() if name in values})


def annotated(field: FieldInfo, kind: type[T]) -> T | None:
    """Return the part of a field's annotation that is of a kind, such as its Advice; None without one."""
    return next((part for part in field.metadata if isinstance(part, kind)), None)


def option_of(name: str) -> str:
    """Return the command-line option of a field, such as --sample-size for sample_size."""
    return f"--{name.replace('_', '-')}"


def _message(fields: Mapping[str, FieldInfo], error: ValidationError) -> str:
    detail = error.errors()[0]
    place = detail["loc"][0]  # a name, or the index of a positional argument
    name = [*fields][place] if isinstance(place, int) else place
    advice = annotated(fields[name], Advice) or Advice(detail["msg"])
    value = detail["input"]
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    elif isinstance(value, str):
        value = repr(value)
    return f"{advice.option or option_of(name)} {value}: {advice.text}"
