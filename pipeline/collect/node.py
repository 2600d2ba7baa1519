"""What this node allows: kernel, tracefs, bpftrace, and the RDMA libraries that running processes use."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.collect.elf import Library, Target
from pipeline.model.errors import MfulossError

_LIBRARIES = re.compile(r"/(lib(?:mlx5|nccl|nvshmem_host|ibverbs)[^/]*\.so[^/]*|nvshmem_transport_ib[^/]*\.so[^/]*)$")
_TRACEFS = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))

PROXY_THREADS = (
    "_Z17ncclProxyProgressPv",  # NCCL's progress thread
    "_Z23nvshmemi_proxy_progressPv",  # NVSHMEM's host proxy
)
"""Functions in which a proxy thread lives: entering one marks the thread, so its wake-ups are seen before it posts."""


@dataclass(frozen=True)
class Check:
    """One line of `collect check`: what was looked at, what was found, what to do where it is not good."""

    name: str
    ok: bool
    found: str
    todo: str | None = None


@dataclass(frozen=True)
class Mapped:
    """A library file in use. `path` reaches it from here, through the process's root where that differs."""

    path: Path
    name: str
    pids: tuple[int, ...]


@dataclass
class NodeReport:
    """What `collect check` found. post_send and poll_cq are None where they can't be probed."""

    checks: list[Check] = field(default_factory=list)
    bpftrace: str | None = None
    libraries: list[Mapped] = field(default_factory=list)
    post_send: list[Target] = field(default_factory=list)
    poll_cq: list[Target] = field(default_factory=list)
    modify_qp: list[Target] = field(default_factory=list)
    proxies: list[Target] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        return all(check.ok for check in self.checks)

    @property
    def measurable(self) -> list[str]:
        """What a run would record, in words."""
        said = [
            "posts (entry, return, bytes)" if self.post_send else "",
            "completions" if self.poll_cq else "",
            "wake-ups and switches of threads that post" if self.post_send else "",
            "wake-ups of proxy threads before their first post" if self.proxies else "",
            "device and peer of new queue pairs" if self.modify_qp else "",
        ]
        return [text for text in said if text]

    @property
    def not_measurable(self) -> list[str]:
        """What no probe of this node can show, in words."""
        said = [
            "" if self.poll_cq else "completions and latencies (poll_cq not found)",
            "work request apart from doorbell (one function in libmlx5)",
            "posts by the GPU itself (they never pass the CPU)",
        ]
        return [text for text in said if text]


def examine(*, library: Path | None = None, pids: tuple[int, ...] = (), proc: Path = Path("/proc")) -> NodeReport:
    """Look at the node. `library` stands for libmlx5 where no process uses one yet; `pids` narrows the search."""
    report = NodeReport()
    report.checks.append(
        Check("root", os.geteuid() == 0, f"user id {os.geteuid()}", "run it as root: probes need CAP_SYS_ADMIN")
    )
    report.checks.append(Check("kernel", True, os.uname().release))
    report.checks.append(
        Check(
            "BTF",
            Path("/sys/kernel/btf/vmlinux").exists(),
            "/sys/kernel/btf/vmlinux",
            "a kernel with CONFIG_DEBUG_INFO_BTF, so that scheduler tracepoints can be typed",
        )
    )
    tracefs = next((place for place in _TRACEFS if (place / "events" / "sched").is_dir()), None)
    report.checks.append(
        Check(
            "tracefs",
            tracefs is not None,
            str(tracefs or "not mounted"),
            "mount -t tracefs tracefs /sys/kernel/tracing",
        )
    )
    report.bpftrace = bpftrace_version()
    report.checks.append(
        Check(
            "bpftrace",
            report.bpftrace is not None,
            report.bpftrace or "not found",
            "install the package bpftrace (0.17 to 0.23 are known to work)",
        )
    )
    report.libraries = libraries_in_use(proc, pids)
    if library is not None:
        report.libraries.append(Mapped(library, "libmlx5", ()))
    _targets(report)
    return report


def _targets(report: NodeReport) -> None:
    for mapped in report.libraries:
        try:
            elf = Library(mapped.path)
        except MfulossError as error:
            report.checks.append(Check(mapped.name, False, error.line(), "the process may have ended; try again"))
            continue
        if mapped.name.startswith("libmlx5"):
            post = elf.symbol("mlx5_post_send") or elf.operation("post_send")
            poll = elf.symbol("mlx5_poll_cq_v1") or elf.poll_cq_v1()
            found = f"{mapped.path}: post_send {_said(post)}, poll_cq {_said(poll)}"
            report.checks.append(
                Check(
                    "libmlx5",
                    post is not None,
                    found,
                    "an unknown build: install its debug symbols, or report its rdma-core version to us",
                )
            )
            report.post_send += [post] if post else []
            report.poll_cq += [poll] if poll else []
        elif mapped.name.startswith("libibverbs"):
            target = elf.symbol("ibv_modify_qp")
            report.modify_qp += [target] if target else []
        else:
            for name in PROXY_THREADS:
                target = elf.symbol(name)
                report.proxies += [target] if target else []
    if not report.post_send and not any(check.name == "libmlx5" for check in report.checks):
        report.checks.append(
            Check(
                "libmlx5",
                False,
                "no running process uses libmlx5",
                "start the job first, or name the library with --library",
            )
        )


def _said(target: Target | None) -> str:
    if target is None:
        return "not found"
    cost = "cheap" if target.cheap else "dear: its first instruction is single-stepped"
    return f"at {target.where} (by {target.found_by}; {cost})"


def bpftrace_version() -> str | None:
    """`bpftrace --version`, or None where there is none."""
    if shutil.which("bpftrace") is None:
        return None
    done = subprocess.run(["bpftrace", "--version"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def libraries_in_use(proc: Path = Path("/proc"), pids: tuple[int, ...] = ()) -> list[Mapped]:
    """RDMA libraries that running processes have mapped, each file once (by device and inode)."""
    found: dict[tuple[int, int], tuple[Path, str, list[int]]] = {}
    wanted = pids or tuple(int(p.name) for p in proc.iterdir() if p.name.isdigit())
    for pid in sorted(wanted):
        try:
            maps = (proc / str(pid) / "maps").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it ended, or is not ours to read
        for name in {line.split(maxsplit=5)[5] for line in maps.splitlines() if line.count("/") and " r-xp " in line}:
            match = _LIBRARIES.search(name)
            if not match:
                continue
            path = proc / str(pid) / "root" / name.lstrip("/")
            try:
                status = path.stat()
            except OSError:
                continue
            entry = found.setdefault((status.st_dev, status.st_ino), (_plain(path, name), match[1], []))
            entry[2].append(pid)
    return [Mapped(path, name, tuple(pids)) for path, name, pids in found.values()]


def _plain(through_root: Path, name: str) -> Path:
    """The path without the detour through the process's root, where that is the same file."""
    try:
        return Path(name) if Path(name).samefile(through_root) else through_root
    except OSError:
        return through_root
