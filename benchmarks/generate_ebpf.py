"""Writes a large `rdma-ebpf-csv-1` file: posts, completions, wake-ups and switches of proxy threads.

python benchmarks/generate_ebpf.py ebpf.csv --records 10000000 [--json]
"""

from __future__ import annotations

import argparse
from pathlib import Path


def period(start_ns: int, first: int, pid: int) -> list[str]:
    """21 records of one wake-up of one thread: woken, run, 8 posts, 8 completions, preempted, sleep."""
    tid, qp, at = pid + 1, 400 + pid % 8, start_ns
    lines = [f"WK,{at},{tid},3,{pid},2", f"SI,{at + 25_600},{tid},3,0"]
    at += 26_000
    for k in range(8):
        lines.append(
            f"PO,{at},{at + 3_300},{pid},{tid},3,{qp},{first + k},{k % 2},2,1,5000{first + k:08x},1,{k % 2},2,114688,0"
        )
        at += 5_000
    for k in range(8):
        lines.append(f"PC,{at},{pid},{tid},3,8,{k},{first + k},0,1,0,{qp}")
        at += 700
    return [*lines, f"SO,{at},{tid},3,0", f"SI,{at + 2_000},{tid},3,77", f"SO,{at + 4_000},{tid},3,1"]


def generate(path: Path, records: int, *, as_json: bool = False) -> int:
    """Write about `records` records; how many."""
    written, first, at = 0, 0, 5_000_000_000_000
    with path.open("w", encoding="ascii") as out:
        head = [f"META,{at},schema,rdma-ebpf-csv-1", f"META,{at},clock,boottime", f"META,{at},probe_cost_ns,1500"]
        lines = head
        while True:
            if as_json:
                lines = ['{"type": "printf", "data": "' + line + '\\n"}' for line in lines]
            out.write("\n".join(lines) + "\n")
            written += len(lines)
            if written >= records:
                return written
            lines = []
            for _ in range(400):
                lines += period(at, first, 5_000 + first // 8 % 8 * 10)
                first += 8
                at += 12_500


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    print(generate(arguments.path, arguments.records, as_json=arguments.json), "records")  # noqa: T201
