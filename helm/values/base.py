"""Base of all groups of values, and the groups that several places share. Names are camelCase, as in Kubernetes."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Group(BaseModel):
    """A group of values; unknown names are refused. Each value has a description, which gives its default's source."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, validate_by_name=True)


def value(default: Any, description: str, **bounds: Any) -> Any:  # noqa: ANN401 (as pydantic's own Field)
    """Declare a value, or a group of a kind that is there several times.

    Args:
        default: Of the value.
        description: Goes into values.yaml, the schema and the README.
        bounds: As pydantic's Field.
    """
    return Field(default=default, description=description, **bounds)


def group(default: Group) -> Any:  # noqa: ANN401 (as pydantic's own Field)
    """Declare a group that is there once, and is described by its docstring.

    Args:
        default: The group with its defaults.
    """
    return Field(default=default, description=default.__doc__)


Name = Annotated[str, Field(min_length=1, max_length=253)]  # of an object in the cluster
Port = Annotated[int, Field(ge=1, le=65535)]
Quantity = Annotated[str, Field(pattern=r"^[0-9.]+(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")] | Annotated[float, Field(ge=0)]
Texts = dict[str, str]
# Kubernetes' own objects, handed on as they are: it checks them itself.
AsInKubernetes = dict[str, Any]


class Image(Group):
    """An image by tag, or by digest where there is one."""

    repository: str = value("taugate/service", "registry and name", min_length=1)
    tag: str | None = value(None, "null: the version of Taugate (the chart's appVersion), for its own images")
    digest: str | None = value(
        None, "digest of the image, such as sha256:…; used in place of the tag", pattern="^sha256:[0-9a-f]{64}$"
    )
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = value("IfNotPresent", "a tag never changes its image")


class Resources(Group):
    """Resources of a container: what is reserved for it, and its limits."""

    requests: dict[str, Quantity] = value({}, "what the scheduler reserves for it")
    limits: dict[str, Quantity] = value({}, "the most that it may use")


class Toleration(Group):
    """A taint that a pod may meet, as in Kubernetes."""

    key: str | None = value(None, "key of the taint; null: every key")
    operator: Literal["Exists", "Equal"] = value("Equal", "Kubernetes' default")
    value_: str | None = Field(default=None, alias="value", description="value of the taint, for Equal")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = value(None, "null: every effect")
    toleration_seconds: int | None = value(None, "how long the pod stays, for NoExecute; null: for ever")


class Account(Group):
    """A service account. No token of it is mounted: neither service nor calibration asks Kubernetes anything."""

    create: bool = value(True, "whether the chart makes it")
    name: Name | None = value(None, "null: made from the name of the installation; `default` if none is created")
    annotations: Texts = value({}, "annotations, such as a cloud's role that opens object storage without credentials")


class SecretEntry(Group):
    """An entry of an existing Secret."""

    existing_secret: Name | None = value(None, "name of the Secret")
    key: str = value("key", "name of the entry in that Secret", min_length=1)
