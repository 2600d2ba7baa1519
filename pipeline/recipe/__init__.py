"""The Nsight Systems recipe `mfu_loss`: installed into a folder that NSYS_RECIPE_PATH names, run by `nsys recipe`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from pipeline.model.errors import UsageError

NAME = "mfu_loss"
_FILES = ("metadata.json", "breakdown.ipynb")


def install(folder: Path, *, force: bool = False) -> Path:
    """Write the recipe into `folder`/mfu_loss; it will call the Python that runs this. Returns its folder.

    Raises UsageError where it is there already (and not `force`), or the folder can't be written.
    """
    source = Path(__file__).with_name(NAME)
    target = folder / NAME
    if target.exists() and not force:
        raise UsageError("the recipe is there already", where=target, todo="--force replaces it")
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            shutil.copyfile(source / name, target / name)
        text = (source / f"{NAME}.py.in").read_text(encoding="utf-8")
        package = str(Path(__file__).resolve().parents[2])
        text = text.replace("@PYTHON@", repr(sys.executable)).replace("@PATH@", repr(package))
        (target / f"{NAME}.py").write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"can't write the recipe: {error.strerror}", where=target) from None
    return target
