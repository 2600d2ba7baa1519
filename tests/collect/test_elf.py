"""Where probes go: symbols where there are any, operation tables where the library is stripped."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pipeline.collect.elf import LAYOUTS, Library, is_emulated
from pipeline.model.errors import MfulossError

# A stripped provider as libmlx5 is built: a full operation table, and one that fills poll_cq alone.
_PROVIDER = """
#define T(n) static void op_##n(void) {{ static volatile int x; x = n; }}
{functions}
typedef void (*op)(void);
__attribute__((used)) static const op before[1] = {{ op_0 }};
__attribute__((used, aligned(64))) static const op v1[{n}] = {{ [{poll}] = op_0 }};
__attribute__((used, aligned(64))) static const op common[{n}] = {{ {slots} }};
__attribute__((used)) static const op gap[2];
const void *keep(int i) {{ return i ? (const void *)common : i > 2 ? (const void *)v1 : (const void *)gap + (long)before; }}
"""


def _build(folder: Path, n: int) -> Library:
    names = LAYOUTS[n]
    source = folder / f"ops{n}.c"
    source.write_text(
        _PROVIDER.format(
            n=n,
            poll=names.index("poll_cq"),
            functions="\n".join(f"T({i})" for i in range(n)),
            slots=", ".join(f"op_{i}" for i in range(n)),
        )
    )
    library = folder / f"libmlx5-{n}.so"
    subprocess.run(["gcc", "-O1", "-fPIC", "-shared", "-s", "-o", library, source], check=True)
    return Library(library)


@pytest.mark.parametrize("n", sorted(LAYOUTS))
def test_post_send_of_a_stripped_library_is_found_through_its_table(tmp_path: Path, n: int) -> None:
    library = _build(tmp_path, n)
    assert library.symbol("mlx5_post_send") is None
    found = [library.operation(name) for name in ("poll_cq", "post_recv", "post_send")]
    offsets = [int(target.where, 16) for target in found if target]
    # The compiler lays the functions out in order, so neighbours in the table are neighbours in the code.
    assert len(offsets) == 3
    assert sorted(offsets) == offsets
    assert offsets[1] - offsets[0] == offsets[2] - offsets[1]


def test_a_library_without_tables_has_no_operation(tmp_path: Path) -> None:
    source = tmp_path / "plain.c"
    source.write_text("int mlx5_post_send(void) { return 0; }\n")
    library = tmp_path / "plain.so"
    subprocess.run(["gcc", "-fPIC", "-shared", "-o", library, source], check=True)
    assert Library(library).operation("post_send") is None
    symbol = Library(library).symbol("mlx5_post_send")
    assert symbol is not None
    assert symbol.where == "mlx5_post_send"


def test_a_file_that_is_no_library_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "libmlx5.so"
    path.write_text("not an ELF file")
    with pytest.raises(MfulossError) as caught:
        Library(path)
    assert caught.value.line().startswith(f"{path}: not a shared library")


@pytest.mark.parametrize(
    ("byte", "cheap"), [(0x55, True), (0x41, True), (0xE9, True), (0x90, True), (0xF3, False), (0x48, False)]
)
def test_first_instructions_that_the_kernel_emulates_are_cheap(byte: int, cheap: bool) -> None:
    assert cheap == is_emulated(byte)
