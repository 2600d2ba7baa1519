"""Where to put a probe in a shared library: symbols, and libmlx5's operation tables where it is stripped.

A uprobe sits at a file offset. libmlx5 is usually stripped of `mlx5_post_send`, but its provider table
`verbs_context_ops` (an array of function pointers, one slot an operation, slots in the alphabetical order of
libibverbs/driver.h) lies in .data.rel.ro and is filled by relative relocations. Its common table fills every
slot, so it is a run of relocations as long as the structure, whose slots' names are known.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from pipeline.model.errors import MfulossError

# Slots of verbs_context_ops around the ones we need, by the structure's length (rdma-core, libibverbs/driver.h,
# "Keep sorted"): 73 in v34-v35, 75 from v36 (import_dm, unimport_dm), 76 from v42 (query_qp_data_in_order).
_OPS_73 = [
    "advise_mr",
    "alloc_dm",
    "alloc_mw",
    "alloc_null_mr",
    "alloc_parent_domain",
    "alloc_pd",
    "alloc_td",
    "async_event",
    "attach_counters_point_flow",
    "attach_mcast",
    "bind_mw",
    "close_xrcd",
    "cq_event",
    "create_ah",
    "create_counters",
    "create_cq",
    "create_cq_ex",
    "create_flow",
    "create_flow_action_esp",
    "create_qp",
    "create_qp_ex",
    "create_rwq_ind_table",
    "create_srq",
    "create_srq_ex",
    "create_wq",
    "dealloc_mw",
    "dealloc_pd",
    "dealloc_td",
    "dereg_mr",
    "destroy_ah",
    "destroy_counters",
    "destroy_cq",
    "destroy_flow",
    "destroy_flow_action",
    "destroy_qp",
    "destroy_rwq_ind_table",
    "destroy_srq",
    "destroy_wq",
    "detach_mcast",
    "free_context",
    "free_dm",
    "get_srq_num",
    "import_mr",
    "import_pd",
    "modify_cq",
    "modify_flow_action_esp",
    "modify_qp",
    "modify_qp_rate_limit",
    "modify_srq",
    "modify_wq",
    "open_qp",
    "open_xrcd",
    "poll_cq",
    "post_recv",
    "post_send",
    "post_srq_ops",
    "post_srq_recv",
    "query_device_ex",
    "query_ece",
    "query_port",
    "query_qp",
    "query_rt_values",
    "query_srq",
    "read_counters",
    "reg_dm_mr",
    "reg_dmabuf_mr",
    "reg_mr",
    "req_notify_cq",
    "rereg_mr",
    "resize_cq",
    "set_ece",
    "unimport_mr",
    "unimport_pd",
]
_OPS_75 = sorted([*_OPS_73, "import_dm", "unimport_dm"])
_OPS_76 = sorted([*_OPS_75, "query_qp_data_in_order"])
LAYOUTS: dict[int, list[str]] = {len(names): names for names in (_OPS_73, _OPS_75, _OPS_76)}
_R_X86_64_RELATIVE = 8
_R_AARCH64_RELATIVE = 1027


@dataclass(frozen=True)
class Target:
    """A place for a probe: `where` is what bpftrace takes after the path (symbol or 0xOFFSET)."""

    path: Path
    function: str
    where: str
    found_by: str
    first_byte: int

    @property
    def needs_unsafe(self) -> bool:
        """bpftrace refuses an offset in a stripped library unless told --unsafe."""
        return self.where.startswith("0x")

    @property
    def cheap(self) -> bool:
        """The kernel emulates the first instruction (push, jmp, nop) and needs no single step."""
        return is_emulated(self.first_byte)


def is_emulated(first_byte: int) -> bool:
    """Whether x86 uprobes emulate an instruction that begins so: push (50-57, and 41 with REX.B), jmp, call, nop.

    Source: branch_xol_ops and push_xol_ops of the kernel's arch/x86/kernel/uprobes.c.
    """
    return 0x50 <= first_byte <= 0x57 or first_byte in (0x41, 0xE9, 0xEB, 0xE8, 0x90)


class Library:
    """An ELF shared library, read once."""

    def __init__(self, path: Path) -> None:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile

        self.path = path
        try:
            with path.open("rb") as stream:
                elf = ELFFile(stream)
                self._segments = [
                    (s["p_vaddr"], s["p_offset"], s["p_filesz"], bool(s["p_flags"] & 1))
                    for s in elf.iter_segments()
                    if s["p_type"] == "PT_LOAD"
                ]
                self.symbols = _symbols(elf)
                self._relative = _relative_relocations(elf)
                section = elf.get_section_by_name(".data.rel.ro")
                self._relro = (section["sh_addr"], section["sh_addr"] + section["sh_size"]) if section else (0, 0)
        except (ELFError, OSError, struct.error) as error:
            raise MfulossError(f"not a shared library that can be read: {error}", where=path) from None

    def offset(self, address: int) -> int:
        """File offset of a virtual address. Raises ValueError outside the file's executable segments."""
        for start, offset, size, executable in self._segments:
            if executable and start <= address < start + size:
                return int(offset + address - start)
        raise ValueError(f"{address:#x} is in no executable segment")

    def first_byte(self, address: int) -> int:
        with self.path.open("rb") as stream:
            stream.seek(self.offset(address))
            byte = stream.read(1)
        return byte[0] if byte else 0

    def symbol(self, name: str) -> Target | None:
        """A probe on a symbol, or None where the library does not have it."""
        address = self.symbols.get(name)
        if not address:
            return None
        return Target(self.path, name, name, "symbol", self.first_byte(address))

    def operation(self, name: str) -> Target | None:
        """A probe on a provider operation (post_send, poll_cq) from the operation tables; None where not unique."""
        tables = self.operation_tables()
        if len(tables) != 1:
            return None
        base, layout = tables[0]
        address = self._relative[base + 8 * layout.index(name)]
        return Target(
            self.path, f"mlx5_{name}", f"{self.offset(address):#x}", "operation table", self.first_byte(address)
        )

    def operation_tables(self) -> list[tuple[int, list[str]]]:
        """(address, slot names) of every full operation table whose length is a known layout's."""
        low, high = self._relro
        found = []
        slot = low
        while slot < high:
            end = slot
            while end < high and self._is_code(self._relative.get(end)):
                end += 8
            if (end - slot) // 8 in LAYOUTS:
                found.append((slot, LAYOUTS[(end - slot) // 8]))
            slot = end + 8
        return found

    def poll_cq_v1(self) -> Target | None:
        """`mlx5_poll_cq_v1` from its table, which fills that one slot alone.

        It is the only function pointer with empty slots as far as the structure reaches on both sides.
        """
        tables = self.operation_tables()
        if len(tables) != 1:
            return None
        _, layout = tables[0]
        index = layout.index("poll_cq")
        low, high = self._relro
        addresses = []
        for slot in range(low + 8 * index, high - 8 * (len(layout) - index) + 1, 8):
            if not self._is_code(self._relative.get(slot)):
                continue
            table = range(slot - 8 * index, slot + 8 * (len(layout) - index), 8)
            if all(place == slot or place not in self._relative for place in table):
                addresses.append(self._relative[slot])
        if len(addresses) != 1:
            return None
        address = addresses[0]
        return Target(
            self.path, "mlx5_poll_cq_v1", f"{self.offset(address):#x}", "operation table", self.first_byte(address)
        )

    def _is_code(self, address: int | None) -> bool:
        if address is None:
            return False
        return any(x and start <= address < start + size for start, _, size, x in self._segments)


def _symbols(elf: object) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in (".dynsym", ".symtab"):
        section = elf.get_section_by_name(name)  # type: ignore[attr-defined]
        if section is None:
            continue
        for symbol in section.iter_symbols():
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_value"]:
                found[symbol.name] = int(symbol["st_value"])
    return found


def _relative_relocations(elf: object) -> dict[int, int]:
    section = elf.get_section_by_name(".rela.dyn")  # type: ignore[attr-defined]
    if section is None:
        return {}
    return {
        int(r["r_offset"]): int(r["r_addend"])
        for r in section.iter_relocations()
        if r["r_info_type"] in (_R_X86_64_RELATIVE, _R_AARCH64_RELATIVE)
    }
