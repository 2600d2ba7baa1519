"""The bpftrace program for this node, as text that a site can review before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.collect.elf import Target
from pipeline.collect.node import NodeReport
from pipeline.model.errors import MfulossError

SCHEMA = "rdma-ebpf-csv-1"


def program(report: NodeReport, *, pids: tuple[int, ...] = (), poll: bool = True) -> str:
    """The program. `pids` restricts the probes to these processes; without `poll` completions are not seen.

    Raises MfulossError where post_send can't be probed.
    """
    if not report.post_send:
        reasons = "; ".join(check.found for check in report.checks if not check.ok)
        raise MfulossError(f"there is no post_send to probe: {reasons}", todo="see `mfuloss collect check`")
    return render(
        report.post_send,
        pids=pids,
        poll_cq=report.poll_cq if poll else (),
        modify_qp=report.modify_qp,
        proxies=report.proxies,
    )


def render(
    post_send: Sequence[Target],
    *,
    pids: tuple[int, ...] = (),
    poll_cq: Sequence[Target] = (),
    modify_qp: Sequence[Target] = (),
    proxies: Sequence[Target] = (),
) -> str:
    """The program with its probes at these places."""
    from jinja2 import Environment, StrictUndefined

    template = Path(__file__).with_name("rdma.bt.jinja").read_text(encoding="utf-8")
    condition = " || ".join(f"pid == {pid:d}" for pid in pids)
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.from_string(template).render(
        schema=SCHEMA,
        filter=f" /{condition}/" if condition else "",
        post_send=post_send,
        poll_cq=poll_cq,
        modify_qp=modify_qp,
        proxies=proxies,
    )
