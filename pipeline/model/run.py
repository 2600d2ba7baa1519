"""run.toml: every key optional, an unknown key is an error that names the nearest one."""

from __future__ import annotations

import difflib
import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipeline.model.errors import ConfigError


def _regex(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return pattern


Regex = Annotated[str, AfterValidator(_regex)]
Positive = Annotated[int, Field(gt=0)]
Natural = Annotated[int, Field(ge=0)]

DEFAULT_STEP_PATTERN = r"^(?:ProfilerStep#|(?:train(?:ing)?[ _-]?|decode[ _-]?|global[ _-]?)?(?:step|iteration|iter)[ _#:=-]*)(?P<step>\d+)$"
"""NVTX texts that mean a step: step_12, ProfilerStep#12, iteration 12, train_step 12, iter=12 (case ignored)."""
DEFAULT_DATA_PATTERN = r"DataLoader|dataload|data_|next_batch|fetch_batch"
"""NVTX ranges that mean data loading."""
DEFAULT_CLOCK_ERROR_NS = 1_000_000


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RunSection(_Section):
    id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")
    started: datetime | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _zone(self) -> RunSection:
        if self.started is not None and self.started.tzinfo is None:
            raise ValueError("started needs a time zone (RFC 3339), for example 2026-01-31T04:00:00Z")
        return self

    @property
    def started_ns(self) -> int | None:
        """Start as UTC epoch ns."""
        if self.started is None:
            return None
        delta = self.started.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        return (delta.days * 86_400 + delta.seconds) * 10**9 + delta.microseconds * 1_000


class ModelSection(_Section):
    flops_per_step: Positive | float | None = Field(default=None, gt=0)
    params_active: Positive | None = None
    layers: Positive | None = None
    hidden: Positive | None = None
    kv_heads: Positive | None = None
    heads: Positive | None = None
    seq_len: Positive | None = None
    tokens_per_step: Positive | None = None
    causal: bool = True
    recompute_flops_per_step: Natural | float | None = Field(default=None, ge=0)
    """FLOPs of activation recompute in a step of the whole job: counted in HFU, never in MFU."""


class HardwareSection(_Section):
    gpu: str | None = None
    dtype: Literal["bf16", "fp16", "fp8", "tf32"] = "bf16"
    peak_tflops: float | None = Field(default=None, gt=0)


class StepsSection(_Section):
    pattern: Regex | None = None
    kind: Literal["training", "decode"] = "training"


class RanksSection(_Section):
    from_: Literal["env", "filename", "device"] | None = Field(default=None, alias="from")
    pattern: Regex | None = None
    gpus_per_node: Positive | None = None
    expected: Positive | None = None


class CommSection(_Section):
    patterns: dict[str, Regex] = Field(default_factory=dict)
    groups: list[list[Natural]] = Field(default_factory=list)


class NetworkSection(_Section):
    link_layer: Literal["InfiniBand", "Ethernet"] | None = None
    beta_bytes_per_s: Positive | None = None
    rtt0_ns: Natural | None = None
    fetch_ns: Natural | None = None
    clock_error_ns: Natural = DEFAULT_CLOCK_ERROR_NS
    nics: dict[Natural, str] = Field(default_factory=dict)


class DataSection(_Section):
    patterns: list[Regex] = Field(default_factory=lambda: [DEFAULT_DATA_PATTERN])


class RunConfig(_Section):
    """A run's description. All defaults: `RunConfig()`."""

    run: RunSection = RunSection()
    model: ModelSection = ModelSection()
    hardware: HardwareSection = HardwareSection()
    steps: StepsSection = StepsSection()
    ranks: RanksSection = RanksSection()
    comm: CommSection = CommSection()
    network: NetworkSection = NetworkSection()
    data: DataSection = DataSection()

    def dump(self) -> dict[str, Any]:
        """As JSON values, for manifest.json; `RunConfig.model_validate` reads it back."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def load(path: Path) -> RunConfig:
    """Read a run.toml. Raises ConfigError that names file, key and the nearest valid key."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"can't read it: {error.strerror}", where=path) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not TOML: {error}", where=path) from None
    return parse(raw, where=path)


def parse(raw: dict[str, Any], *, where: object = "run.toml") -> RunConfig:
    """Validate a parsed run.toml. Raises ConfigError."""
    try:
        return RunConfig.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(*_first_problem(error), where=where) from None


def _first_problem(error: ValidationError) -> tuple[str]:
    problem = error.errors(include_url=False)[0]
    path = [str(part) for part in problem["loc"]]
    key = ".".join(path)
    if problem["type"] != "extra_forbidden":
        return (f"{key}: {problem['msg']}",)
    known = _keys(path[:-1])
    near = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
    return (f"unknown key {key}; {hint}",)


def _keys(section: list[str]) -> list[str]:
    model: type[BaseModel] = RunConfig
    for name in section:
        annotation = model.model_fields[name].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return sorted(field.alias or name for name, field in model.model_fields.items())
