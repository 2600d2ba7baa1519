"""Counter samples: values as they are, lines that are none counted, node from the line."""

from __future__ import annotations

import pytest

from pipeline.model.errors import UnusableInput

HEADER = "node,device,port,link_layer,counter,at_ns,value\n"


def test_samples_keep_node_port_time_and_value(read_text):
    read = read_text(
        HEADER
        + "n7,mlx5_0,1,InfiniBand,port_xmit_data,1795963710521341061,273558326543\n"
        + ",GPU0,,,power_w,1795963710521341062,312.5\n"
    )
    names = ("node", "device", "port", "link_layer", "counter", "at_ns", "value")
    assert read.brief("counters", *names) == [
        ("n7", "mlx5_0", 1, "InfiniBand", "port_xmit_data", 1795963710521341061, 273558326543.0),
        ("n0", "GPU0", None, None, "power_w", 1795963710521341062, 312.5),
    ]
    assert (read.capture.clock, read.capture.host) == ("realtime", "n7")


def test_columns_may_come_in_another_order(read_text):
    read = read_text("at_ns,value,counter,device,port,link_layer,node\n5,6,out_of_buffer,mlx5_1,2,Ethernet,a\n")
    assert read.brief("counters", "node", "port", "at_ns", "value") == [("a", 2, 5, 6.0)]


def test_lines_that_are_no_samples_are_counted_and_kept(read_text):
    read = read_text(
        HEADER + "a,mlx5_0,1,Ethernet,x,5,6\nrubbish\na,mlx5_0,1,Ethernet,x,soon,6\na,mlx5_0,1,Ethernet,x,7,nan\n"
    )
    assert read.brief("counters", "at_ns", "value") == [(5, 6.0)]
    assert read.account.bad_lines == [b"rubbish", b"a,mlx5_0,1,Ethernet,x,soon,6", b"a,mlx5_0,1,Ethernet,x,7,nan"]
    assert read.account.reason == "3 lines could not be read"


def test_a_header_alone_is_unusable(read_text):
    with pytest.raises(UnusableInput, match="a header without a sample"):
        read_text(HEADER)
