"""nightly.toml: what the inbox looks like, and what counts as a loss."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.model.errors import ConfigError
from pipeline.model.run import Regex

CONFIG = "nightly.toml"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class InboxSection(_Section):
    marker: str = "run.toml"
    """Glob of a file whose presence makes a folder a run."""
    settle_s: float = Field(default=60.0, ge=0)
    """A folder in which something changed less than this ago is still being written."""
    job: Regex | None = None
    """Regular expression over a run's folder below the inbox; its group `job` is the job's name."""


class VerdictSection(_Section):
    floor_points: float = Field(default=0.5, ge=0)
    mad_factor: float = Field(default=5.0, gt=0)
    min_nights: int = Field(default=5, ge=2)


class NightlyConfig(_Section):
    """nightly.toml, every key optional."""

    inbox: InboxSection = InboxSection()
    verdict: VerdictSection = VerdictSection()


def settings_of(inbox: Path, config: str | Path | None) -> NightlyConfig:
    """The settings in `config`, else in the inbox's nightly.toml, else the defaults. Raises ConfigError."""
    path = Path(config) if config is not None else inbox / CONFIG
    if config is None and not path.is_file():
        return NightlyConfig()
    try:
        return NightlyConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"can't read it: {error.strerror}", where=path) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not TOML: {error}", where=path) from None
    except ValidationError as error:
        raise ConfigError(_problem(error), where=path) from None


def _problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    path = [str(part) for part in problem["loc"]]
    if problem["type"] != "extra_forbidden":
        return f"{'.'.join(path)}: {problem['msg']}"
    sections: dict[str, type[BaseModel]] = {"inbox": InboxSection, "verdict": VerdictSection}
    section = sections[path[0]] if len(path) > 1 else NightlyConfig
    known = sorted(section.model_fields)
    near = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.5)
    return f"unknown key {'.'.join(path)}; " + (f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}")
