"""`nvidia-smi topo -m`: each pair, NICs by their device name."""

from __future__ import annotations

MATRIX = """\
\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV18\tPIX\t0-47\t0
GPU1\tNV18\t X \tSYS\t48-95\t1
NIC0\tPIX\tSYS\t X \t\t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect

NIC Legend:

  NIC0: mlx5_0
"""


def test_each_pair_is_a_row_and_nics_have_their_device_name(read_text):
    read = read_text(MATRIX, "topo.txt")
    assert read.brief("topology", "node", "a", "b", "path") == [
        ("n0", "GPU0", "GPU0", "X"),
        ("n0", "GPU0", "GPU1", "NV18"),
        ("n0", "GPU0", "mlx5_0", "PIX"),
        ("n0", "GPU1", "GPU0", "NV18"),
        ("n0", "GPU1", "GPU1", "X"),
        ("n0", "GPU1", "mlx5_0", "SYS"),
        ("n0", "mlx5_0", "GPU0", "PIX"),
        ("n0", "mlx5_0", "GPU1", "SYS"),
        ("n0", "mlx5_0", "mlx5_0", "X"),
    ]


def test_colour_codes_of_the_header_do_not_matter(read_text):
    read = read_text(
        MATRIX.replace("\tGPU0\tGPU1", "\t\x1b[4mGPU0\tGPU1", 1).replace("NUMA Affinity", "NUMA Affinity\x1b[0m"), "t"
    )
    assert len(read.tables["topology"]) == 9
