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
    """What the run is called and when it was."""

    id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")
    """Name of the run in the lake, unless `--run` says another; else the folder's name."""
    started: datetime | None = None
    """Start, RFC 3339 with a time zone; `nightly` orders nights by it, else by the first event."""
    note: str | None = None
    """A line that every report shows."""

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
    """FLOPs of a step of the whole job, given or described; without them there is no MFU."""

    flops_per_step: Positive | float | None = Field(default=None, gt=0)
    """Model FLOPs of a step of the whole job, without recompute; goes before the description."""
    params_active: Positive | None = None
    """Parameters that a token meets (mixture of experts: not all). 6 FLOPs each a token."""
    layers: Positive | None = None
    """Layers, for attention's FLOPs."""
    hidden: Positive | None = None
    """Width of a layer: heads times head size, for attention's FLOPs."""
    kv_heads: Positive | None = None
    """For the record: heads that share keys and values have fewer parameters, and equal attention FLOPs."""
    heads: Positive | None = None
    """For the record: `hidden` has them all."""
    seq_len: Positive | None = None
    """Tokens of a sequence, for attention's FLOPs."""
    tokens_per_step: Positive | None = None
    """Tokens of a step of the whole job."""
    causal: bool = True
    """Attention with a causal mask: 6 L h s FLOPs a token, else 12."""
    recompute_flops_per_step: Natural | float | None = Field(default=None, ge=0)
    """FLOPs of recompute in a step of the whole job: counted in HFU, never in MFU."""


class HardwareSection(_Section):
    """The dense peak that MFU is a share of."""

    gpu: str | None = None
    """GPU's name, for its peak; else what the captures say."""
    dtype: Literal["bf16", "fp16", "fp8", "tf32"] = "bf16"
    """Type of the matrix products, whose dense peak counts."""
    peak_tflops: float | None = Field(default=None, gt=0)
    """Dense peak of a GPU, TFLOP/s; goes before the table of GPUs."""


class StepsSection(_Section):
    """What a step is."""

    pattern: Regex | None = None
    """Regular expression over NVTX texts; a named or the first group is the step's number. Default: names such as step_12."""
    kind: Literal["training", "decode"] = "training"
    """`decode`: a step is a token's time, and there is no MFU."""


class RanksSection(_Section):
    """Which process is which rank."""

    from_: Literal["env", "filename", "device"] | None = Field(default=None, alias="from")
    """Where a rank is read: environment of the process, file name, or node and device. Default: in this order."""
    pattern: Regex | None = None
    """Regular expression over file names; a group is the rank."""
    gpus_per_node: Positive | None = None
    """GPUs of a node, for ranks by node and device."""
    expected: Positive | None = None
    """Ranks of the job; more than were captured: the step's FLOPs are shared by them all, and ranks are missed."""


class CommSection(_Section):
    """What communicates, and who with whom."""

    patterns: dict[str, Regex] = Field(default_factory=dict)
    """Name to regular expression over kernel names: kernels that communicate, beside those that are known."""
    groups: list[list[Natural]] = Field(default_factory=list)
    """Communicators that exist, as lists of ranks, where no source names them."""


class NetworkSection(_Section):
    """Constants of the network; what is not given is fitted where messages allow it."""

    link_layer: Literal["InfiniBand", "Ethernet"] | None = None
    """Link layer of the NICs, where no counters say it."""
    beta_bytes_per_s: Positive | None = None
    """Payload bandwidth of a NIC, one way, bytes/s."""
    rtt0_ns: Natural | None = None
    """Base latency of a message: completion less leaving post_send less payload time, on an idle network, ns."""
    fetch_ns: Natural | None = None
    """The NIC fetches a work request in this time, ns; ctl_fetch is there only with it."""
    clock_error_ns: Natural = DEFAULT_CLOCK_ERROR_NS
    """Bound of the error between nodes' clocks before collectives tell it better, ns."""
    nics: dict[Natural, str] = Field(default_factory=dict)
    """Rank to device, where captures don't say which NIC a rank posts to."""


class DataSection(_Section):
    """What data loading is."""

    patterns: list[Regex] = Field(default_factory=lambda: [DEFAULT_DATA_PATTERN])
    """Regular expressions over NVTX texts of ranges that mean data loading."""


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
