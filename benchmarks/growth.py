"""How time and memory grow with ranks: the same small ranks, more of them.

python benchmarks/growth.py [--ranks 8 64 512] [--kernels 8000]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import generate_nsys
import run

GPUS = 8


def grow(folder: Path, ranks: list[int], kernels: int) -> None:
    """Generate nodes of eight ranks, ingest and attribute each number of ranks; print a table."""
    table = run.Table()
    captures = folder / "captures"
    captures.mkdir()
    nodes = 0
    for count in sorted(ranks):
        while nodes * GPUS < count:
            file = captures / f"node{nodes}.sqlite"
            generate_nsys.generate(file, kernels * GPUS, processes=GPUS, first_rank=nodes * GPUS)
            nodes += 1
        lake = folder / "lake"
        done = [
            table.add(run.case(f"ingest, {count} ranks", "ingest", lake, "many", captures)),
            table.add(run.case(f"attribution, {count} ranks", "attribute", lake, "many")),
            table.add(run.case(f"report, {count} ranks", "report", lake, "many")),
        ]
        files = list(lake.rglob("*.parquet"))
        stored = sum(file.stat().st_size for file in files)
        each = ", ".join(f"{row.name.split(',')[0]} {row.processor_s / count:.3f}" for row in done)
        run.note(
            f"{count} ranks: CPU s a rank: {each}; of attribution {done[1].own_s:.2f} CPU s on the client; "
            f"lake {stored / count:,.0f} bytes and {len(files) / count:.1f} files a rank"
        )
        shutil.rmtree(lake)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--kernels", type=int, default=8_000, help="of each rank (default: 8000, two steps)")
    arguments = parser.parse_args()
    place = run.ROOT / "bench"
    place.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="growth-", dir=place))
    try:
        grow(folder, arguments.ranks, arguments.kernels)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
