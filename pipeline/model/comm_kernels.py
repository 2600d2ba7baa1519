"""Which GPU kernels communicate, as data: patterns over kernel names, by the library that they belong to.

A name says only that a kernel communicates. Which operation it runs, a name never decides (NCCL 2.13
called every collective SendRecv, and one kernel can run several operations). `[comm] patterns` of
run.toml extends the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

COMM_KERNELS: Mapping[str, str] = MappingProxyType(
    {
        # ncclKernel_* up to 2.18, ncclDevKernel_* from 2.19, ncclSymk* and ncclSymDevKernel_* from 2.27, AllReduceKernel before 2.0
        "nccl": r"^(?:nccl|ncclx)(?:Dev|Sym|SymDev|Symk)?(?:Kernel|k)\w*|^nccl\w*(?:Kernel|AllReduce|AllGather|ReduceScatter|Broadcast|SendRecv|AlltoAll)\w*$",
        # RCCL keeps NCCL's names and adds its own generic and MSCCL kernels
        "rccl": r"^(?:rccl|msccl|mscclpp)\w*|^ncclDevKernel_Generic\w*",
        "nvshmem": r"^(?:nvshmem|nvshmemi|nvshmemx|nvshmemt)\w*|^nvshmem\w*::",
        "deep_ep": r"^deep_ep::|^deep_ep_|(?:^|::)(?:internode_ll|internode|intranode)::(?:dispatch|combine|notify_dispatch|cached_notify|get_dispatch_layout|clean_low_latency_buffer)",
        "deepseek": r"^dpsk::ep::",
        "pplx": r"^pplx::|(?:^|::)AllToAll(?:Internode|Intranode)",
        "ucc": r"^ucc_\w*|^ucc::|^ucp_\w*|^uct_\w*|(?:^|::)(?:executor_kernel|ucc_tl_\w+)$",
        "vllm": r"^vllm::(?:cross_device_reduce|allreduce|all_reduce|custom_all_?reduce|qr::)\w*|(?:^|::)cross_device_reduce_[12]stage\w*|^quickreduce::|(?:^|::)allreduce_prototype_\w+",
        "sglang": r"^sglang::(?:cross_device_reduce|all_?reduce|custom_all_?reduce)\w*",
        "tensorrt_llm": r"^tensorrt_llm::(?:kernels::)?(?:\w+::)*(?:\w*[Aa]ll_?[Rr]educe\w*|lamport\w*|oneShot\w*|twoShot\w*|(?:one|two)shot_\w+|moe\w*[Cc]omm\w*|moeAllToAll\w*|alltoall\w*|userbuffers\w*)",
        "flashinfer": r"^flashinfer::(?:trtllm_(?:mnnvl_)?allreduce\w*::|comm::)\w*|^flashinfer::\w*all_?reduce\w*",
        "pytorch_symm_mem": r"^c10d::symmetric_memory::|(?:^|::)(?:one_shot_all_reduce|two_shot_all_reduce|multimem_(?:one_shot_)?(?:all_reduce|all_gather|reduce_scatter))\w*_kernel|(?:^|::)(?:barrier|put_signal|wait_signal)_kernel$",
        "transformer_engine": r"(?:^|::)userbuffers_\w+|^transformer_engine::userbuffers",
    }
)
"""Library → regular expression (RE2's syntax), searched in the kernel's qualified name: namespaces and function,
without return type, template arguments and parameters."""


def builtin_pattern() -> str:
    """One regular expression for all of `COMM_KERNELS`."""
    return "|".join(f"(?:{pattern})" for pattern in COMM_KERNELS.values())


def user_pattern(patterns: Mapping[str, str]) -> str | None:
    """One regular expression for `[comm] patterns` of run.toml, searched in whole kernel names; None: there are none."""
    return "|".join(f"(?:{pattern})" for pattern in patterns.values()) or None
