"""The base of all groups of values, and shared groups. Names are camelCase, as in Kubernetes."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Group(BaseModel):
    """A group of values; unknown names are refused. Descriptions include the source of the default."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, validate_by_name=True)


def value(default: Any, description: str, **bounds: Any) -> Any:  # noqa: ANN401 (like pydantic's Field)
    """Declare a value, or a group whose class is used several times.

    Args:
        default: Default value.
        description: Text for values.yaml, the schema and the README.
        bounds: Further arguments of pydantic's Field.
    """
    return Field(default=default, description=description, **bounds)


def group(default: Group) -> Any:  # noqa: ANN401 (like pydantic's Field)
    """Declare a group, given by its defaults, whose class is used once; its docstring is the description."""
    return Field(default=default, description=default.__doc__)


Name = Annotated[str, Field(min_length=1, max_length=253)]  # of an object in the cluster
Port = Annotated[int, Field(ge=1, le=65535)]
Quantity = Annotated[str, Field(pattern=r"^[0-9.]+(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")] | Annotated[float, Field(ge=0)]
Texts = dict[str, str]
# Kubernetes' own objects, passed on unchanged and checked by Kubernetes.
AsInKubernetes = dict[str, Any]
Variables = dict[str, str | AsInKubernetes]  # a text, or such as {valueFrom: {secretKeyRef: {name: NAME, key: KEY}}}


class Image(Group):
    """An image by tag, or by digest if there is one."""

    repository: str = value("taugate/service", "registry and name", min_length=1)
    tag: str | None = value(None, "null: the version of Taugate (the chart's appVersion), for its own images")
    digest: str | None = value(
        None, "digest of the image, such as sha256:…; used in place of the tag", pattern="^sha256:[0-9a-f]{64}$"
    )
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = value("IfNotPresent", "a tag never changes its image")


# A name without tag or digest gets the version of Taugate.
ImageName = Annotated[str, Field(min_length=1)]


class Resources(Group):
    """Resources of a container: requests and limits."""

    requests: dict[str, Quantity] = value({}, "reserved by the scheduler")
    limits: dict[str, Quantity] = value({}, "largest use")


class Toleration(Group):
    """A taint that a pod tolerates, as in Kubernetes."""

    key: str | None = value(None, "key of the taint; null: every key")
    operator: Literal["Exists", "Equal"] = value("Equal", "Kubernetes' default")
    value_: str | None = Field(default=None, alias="value", description="value of the taint, for Equal")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = value(None, "null: every effect")
    toleration_seconds: int | None = value(None, "time until eviction, for NoExecute; null: never")


class Scheduled(Group):
    """A part with pods of its own."""

    pod: AsInKubernetes = value(
        {}, "fields of its pods' spec, as in Kubernetes, such as {nodeSelector: {pool: batch}, tolerations: […]}"
    )


class Account(Group):
    """A service account. Its token is not mounted, because service and calibration do not use the Kubernetes API."""

    name: Name | None = value(None, "an existing account; null: the chart creates one, named like the installation")
    annotations: Texts = value(
        {}, "annotations, such as a cloud role that grants access to object storage without credentials"
    )


# NAME or NAME/ENTRY of an existing Secret.
SecretEntry = Annotated[str, Field(pattern="^[^/]{1,253}(/[^/]+)?$")]
