"""Base of the calibration's settings: a frozen record whose fields are checked, and refused by the option's name."""

from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from typing import Annotated, Any, Self

from pydantic import AfterValidator, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from taugate.errors import InputError


@plain_dataclass(frozen=True)
class Advice:
    """Says how to correct an option whose value is refused; it goes into the field's annotation.

    Attributes:
        text: What to give instead.
        option: The option on the command line, None for the one named after the field.
    """

    text: str
    option: str | None = None


def _file_name(split: str) -> str:
    if not split or "/" in split or split in {".", ".."}:
        raise ValueError("no name of a file")
    return split


SplitName = Annotated[
    Annotated[str, AfterValidator(_file_name)] | None, Advice("give the name of a file in qrels/, without .tsv")
]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Options:
    """A group of settings, which `dataclasses.replace` derives another one from.

    Each field is declared with `Field(default=…, description=…)`, which is also its help on the command line, with
    bounds, and with an `Advice` for values outside of them. Constructors raise InputError for such a value.
    """

    @model_validator(mode="wrap")
    @classmethod
    def _raise_input_error(cls, values: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:  # noqa: ANN401
        """Say what is wrong with the first value that is refused, in the words of its advice."""
        try:
            return validate(values)
        except ValidationError as error:
            raise InputError(_message(cls.fields(), error)) from error

    @classmethod
    def fields(cls) -> Mapping[str, FieldInfo]:
        """The declaration of each field, by name."""
        declared: Mapping[str, FieldInfo] = cls.__pydantic_fields__  # type: ignore[attr-defined]  # set by the decorator
        return declared


def option_of(name: str) -> str:
    """The option on the command line that is named after a field, such as --sample-size.

    Args:
        name: The field, such as sample_size.
    """
    return f"--{name.replace('_', '-')}"


def _message(fields: Mapping[str, FieldInfo], error: ValidationError) -> str:
    detail = error.errors()[0]
    place = detail["loc"][0]  # a name, or the position of an argument that was given without one
    name = [*fields][place] if isinstance(place, int) else place
    advice = next((each for each in fields[name].metadata if isinstance(each, Advice)), Advice(detail["msg"]))
    value = detail["input"]
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    elif isinstance(value, str):
        value = repr(value)
    return f"{advice.option or option_of(name)} {value}: {advice.text}"
