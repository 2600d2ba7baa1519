"""What recorders' output really looks like: each fault in its smallest form, and what must come of it."""

from __future__ import annotations

import random

import pytest

from pipeline.model.errors import UnusableInput

PO = "PO,{enter},{leave},10,11,3,417,{wr_id},0,2,1,5000000a0000,1,0,2,4096,0"
PC = "PC,{at},10,11,3,1,0,{wr_id},0,1,0,417"


def po(enter, leave, wr_id=0):
    return PO.format(enter=enter, leave=leave, wr_id=wr_id)


def pc(at, wr_id=0):
    return PC.format(at=at, wr_id=wr_id)


def lines(*each):
    return "\n".join(each) + "\n"


def wrap(*each):
    return "".join('{"type": "printf", "data": "' + line + '\\n"}\n' for line in each)


def test_a_post_has_every_column_of_its_record(read_text):
    text = lines(
        "META,1000000,clock,boottime",
        "PO,1000000,1003000,10,11,3,417,18446744073709551615,0,0,1,5000000a0000,2,1,2,65536,0",
    )
    assert read_text(text, ranks={10: 7}).tables["rdma_posts"] == [
        {
            "node": "n0",
            "rank": 7,
            "pid": 10,
            "tid": 11,
            "cpu": 3,
            "nic": None,
            "qp": 417,
            "wr_id": 18446744073709551615,
            "opcode": "RDMA_WRITE",
            "n_wr": 2,
            "bytes": 65536,
            "signaled": True,
            "enter_ns": 1000000,
            "exit_ns": 1003000,
            "ret": 0,
            "doorbell_ns": None,
            "source": "bpftrace",
        }
    ]


def test_a_completion_has_every_column_of_its_record(read_text):
    read = read_text(lines(po(1000000, 1003000), "PC,1009000,10,12,3,1,0,5,12,129,0,417"))
    assert read.tables["rdma_completions"] == [
        {
            "node": "n0",
            "rank": None,
            "pid": 10,
            "tid": 12,
            "nic": None,
            "qp": 417,
            "wr_id": 5,
            "status": 12,
            "opcode": "RECV_RDMA_WITH_IMM",
            "seen_ns": 1009000,
        }
    ]


def test_text_that_is_no_record_is_passed_over_and_bad_records_are_kept(read_text):
    text = lines(
        "Attaching 10 probes...",
        po(1000000, 1003000),
        "",
        "@empty[5210]: 1389",
        "PO,1000000,1003000,10,11",
        "PO,x,1003000,10,11,3,417,0,0,2,1,0,1,0,2,4096,0",
        "PC,1000000,10,11,3,1,0,0,0,1,0,417,99,98,97,96,95,94,93",
        "segmentation fault",
        "HB,1000001,2026-11-29T14:48:34.480232+0000",
        pc(1009000),
    )
    read = read_text(text)
    assert (len(read.tables["rdma_posts"]), len(read.tables["rdma_completions"])) == (1, 1)
    assert sorted(read.account.bad_lines) == [
        b"PC,1000000,10,11,3,1,0,0,0,1,0,417,99,98,97,96,95,94",
        b"PO,1000000,1003000,10,11",
        b"PO,x,1003000,10,11,3,417,0,0,2,1,0,1,0,2,4096,0",
        b"segmentation fault",
    ]
    assert (read.account.status, read.account.reason) == ("partial", "4 lines could not be read")


@pytest.mark.parametrize("rest", ["PC,1009000,10,11,3,1,0,0,0,1,0,41", "PC,10090", "Lo", "META,1009"])
def test_a_last_line_without_line_feed_is_cut_even_where_it_looks_whole(read_text, rest):
    read = read_text(lines(po(1000000, 1003000)) + rest)
    assert len(read.tables["rdma_completions"]) == 0
    assert read.account.bad_lines == [rest.encode()]
    assert read.account.reason == "the last line is cut short"


def test_negative_integers_printed_unsigned_are_negative(read_text):
    """F49: -11 comes as 4294967285, as 18446744073709551605, or as it is."""
    head = "PO,1000000,1003000,10,11,3,417,0,0,2,1,0,1,0,2,4096,"
    read = read_text(lines(head + "4294967285", head + "18446744073709551605", head + "-11", head + "0"))
    assert read.column("rdma_posts", "ret") == [-11, -11, -11, 0]
    assert read.account.bad_line_count == 0


def test_a_lost_event_line_between_records_covers_from_the_one_before_to_the_one_after(read_text):
    """F47: in the order of the file, whatever the clock says."""
    read = read_text(
        lines(po(1000000, 1003000), "Lost 1234 events", pc(1009000), po(1000500, 1004000), "Lost 6 events")
    )
    assert read.brief("losses", "node", "source", "start_ns", "end_ns", "lost_events") == [
        ("n0", "ebpf", 1003000, 1009000, 1234),
        ("n0", "ebpf", 1004000, 1009000, 6),
    ]
    assert (read.account.lost_events, read.account.reason) == (1240, "the recorder lost 1240 events")


def test_a_loss_at_the_edge_of_a_block_finds_its_neighbours(read_text, monkeypatch):
    from pipeline.sources import _text

    whole = lines(*(po(1000000 + i, 1003000 + i, i) for i in range(40)), "Lost 5 events", pc(2009000), pc(2009001, 1))
    expected = read_text(whole).tables
    for size in (400, 700):
        monkeypatch.setattr(_text.blocks, "__kwdefaults__", {**_text.blocks.__kwdefaults__, "size": size})
        assert read_text(whole).tables == expected
    assert [(row["start_ns"], row["end_ns"]) for row in expected["losses"]] == [(1003039, 2009000)]


def test_json_lines_and_objects_over_several_lines_are_both_read(read_text):
    """F45."""
    pretty = '{\n  "type": "printf",\n  "data": "' + pc(1009000) + '\\n"\n}\n'
    text = '{"type": "attached_probes", "data": {"probes": 10}}\n' + wrap(po(1000000, 1003000)) + pretty
    text += '{\n "type": "map",\n "data": {\n  "@empty": {"1395": 1137}\n }\n}\n'
    read = read_text(text + '{"type": "lost_events", "data": {"events": 3}}\n' + wrap(pc(1009500, 1)), "x.jsonl")
    assert (len(read.tables["rdma_posts"]), read.column("rdma_completions", "seen_ns")) == (1, [1009000, 1009500])
    assert read.brief("losses", "start_ns", "end_ns", "lost_events") == [(1009000, 1009500, 3)]
    assert read.account.bad_line_count == 0


def test_json_without_spaces_is_read_beside_json_with(read_text):
    text = wrap(po(1000000, 1003000)) + '{"type":"printf","data":"' + pc(1009000) + '\\n"}\n' + wrap(pc(1009500, 1))
    read = read_text(text, "x.jsonl")
    assert (len(read.tables["rdma_posts"]), read.column("rdma_completions", "seen_ns")) == (1, [1009000, 1009500])
    assert read.account.bad_line_count == 0


def test_an_unescaped_string_costs_its_own_line_only(read_text):
    """F46 and F37."""
    bad = '{"type": "value", "data": ["err",Operation not permitted]}'
    read = read_text(wrap(po(1000000, 1003000)) + bad + "\n\n" + wrap(pc(1009000)), "x.jsonl")
    assert (len(read.tables["rdma_posts"]), len(read.tables["rdma_completions"])) == (1, 1)
    assert read.account.bad_lines == [bad.encode()]


def test_bytes_that_are_no_text_do_no_harm(read_text):
    read = read_text(lines(po(1000000, 1003000)).encode() + b"\xff\xfe\x01 \x00\n" + lines(pc(1009000)).encode())
    assert (len(read.tables["rdma_posts"]), len(read.tables["rdma_completions"])) == (1, 1)
    assert read.account.bad_line_count == 1


def test_windows_line_ends_are_line_ends(read_text):
    read = read_text(lines(po(1000000, 1003000), pc(1009000)).replace("\n", "\r\n"))
    assert (len(read.tables["rdma_posts"]), len(read.tables["rdma_completions"]), read.account.bad_line_count) == (
        1,
        1,
        0,
    )


@pytest.mark.parametrize(
    ("meta", "tool", "clock"),
    [
        ("META,1000000,clock,boottime", "bpftrace", "boottime"),
        ("META,1000000,clock,monotonic", "bpftrace", "monotonic"),
        ("META,1000000,tool,bcc", "bcc", "monotonic"),
        ("HB,1000000,x", "bpftrace", "boottime"),
    ],
)
def test_the_clock_is_what_the_file_says_else_that_of_its_tool(read_text, meta, tool, clock):
    """F53: bpftrace's nsecs is CLOCK_BOOTTIME; bcc and libbpf give CLOCK_MONOTONIC."""
    read = read_text(lines(meta, po(1000000, 1003000)))
    assert (read.capture.tool, read.capture.clock) == (tool, clock)
    assert read.column("rdma_posts", "source") == [tool]


@pytest.mark.parametrize(
    "bad",
    [
        po(2**63 - 1, 1003000, 9),
        po(1002000, 2**62, 9),
        po(1002000, 1003000, 9).replace(",4096,", f",{2**63 - 1},"),
        pc(2**63 - 1, 9),
        f"SI,{2**61},11,3,10",
        f"WK,{2**63 - 1},11,3,10,2",
    ],
)
def test_a_line_with_an_impossible_time_or_size_is_no_record_and_the_others_are(read_text, bad):
    read = read_text(lines(po(1000000, 1001000), bad, pc(1009000)))
    assert (read.account.bad_line_count, read.account.bad_lines) == (1, [bad.encode()])
    assert (read.column("rdma_posts", "exit_ns"), read.column("rdma_completions", "seen_ns")) == ([1001000], [1009000])


def test_the_probe_cost_moves_the_return_earlier_but_not_before_the_entry(read_text):
    read = read_text(lines("META,1000000,probe_cost_ns,1500", po(1000000, 1003000), po(1005000, 1005900)))
    assert read.brief("rdma_posts", "enter_ns", "exit_ns") == [(1000000, 1001500), (1005000, 1005000)]
    assert read.account.probe_cost_ns == 1500


def test_the_part_before_the_function_moves_the_entry_later_where_calibration_knows_it(read_text):
    """The stamps enclose a part of both traps: a post is taken out of the middle, never turned inside out."""
    calibrated = [f"META,1000000,{key},{value}" for key, value in (("probe_cost_ns", 1500), ("probe_exit_ns", 400))]
    posts = [po(1000000, 1003000), po(1005000, 1005900), po(1006000, 1006300)]
    read = read_text(lines(*calibrated, "META,1000000,probe_call_ns,11500", *posts))
    assert read.brief("rdma_posts", "enter_ns", "exit_ns") == [
        (1001100, 1002600),
        (1005500, 1005500),
        (1006000, 1006000),
    ]
    assert (read.account.probe_cost_ns, read.account.probe_exit_ns, read.account.probe_call_ns) == (1500, 400, 11500)


def test_nothing_is_subtracted_without_calibration_and_that_is_said(read_text):
    read = read_text(lines(po(1000000, 1003000)))
    assert (read.column("rdma_posts", "exit_ns"), read.account.probe_cost_ns) == ([1003000], None)
    assert "probe cost not calibrated: post times are upper bounds" in read.capture.notes


def test_a_queue_pair_that_was_seen_names_device_and_peer(read_text):
    read = read_text(lines("META,1000000,qp,10/417/mlx5_3/900", po(1000500, 1003000), pc(1009000)))
    assert read.brief("rdma_qps", "node", "pid", "nic", "qp", "peer_qp", "at_ns") == [
        ("n0", 10, "mlx5_3", 417, 900, 1000000)
    ]
    assert (read.column("rdma_posts", "nic"), read.column("rdma_completions", "nic")) == (["mlx5_3"], ["mlx5_3"])


def test_a_doorbell_probe_beside_whole_records_finds_its_post(read_text):
    read = read_text(lines("DB,1001000,10,11,3", po(1000000, 1003000), po(1005000, 1008000, 1)))
    assert sorted(read.brief("rdma_posts", "enter_ns", "doorbell_ns", "exit_ns", "n_wr", "ret")) == [
        (1000000, 1001000, 1003000, 1, 0),
        (1005000, None, 1008000, 1, 0),
    ]


def test_a_call_whose_return_was_lost_keeps_its_entry(read_text):
    enter = "PS,{},10,11,3,417,{},0,2,1,4096,5000,0"
    read = read_text(lines(enter.format(1000000, 1), enter.format(1005000, 2), "PX,1008000,10,11,3,3000,0"))
    assert sorted(read.brief("rdma_posts", "enter_ns", "exit_ns", "wr_id")) == [
        (1000000, None, 1),
        (1005000, 1008000, 2),
    ]


def test_libbpf_says_how_much_it_lost_but_not_when(read_text):
    post = "PS,{},10,11,1,417,0,1,2,4096,5000,0"
    read = read_text(lines(post.format(1000000), post.format(1900000), "META,end,events=2,lost=7"))
    assert read.brief("losses", "start_ns", "end_ns", "lost_events") == [(1000000, 1900000, 7)]
    assert read.account.lost_events == 7


def test_a_clock_that_steps_back_is_said(read_text):
    """F76."""
    read = read_text(lines(po(20_000_000_000, 20_000_003_000), po(1_000_000_000, 1_000_003_000)))
    assert read.account.reason == "its times step back by more than 10 s: several recordings, or a clock that wraps"
    assert len(read.tables["rdma_posts"]) == 2


def test_the_order_of_records_does_not_matter(read_text):
    records = [
        f"SO,{t},11,3,1\nWK,{t + 50},11,3,9,2\nSI,{t + 80},11,3,0".split("\n") for t in range(1_000_000, 1_009_000, 900)
    ]
    records = [record for each in records for record in each] + [po(1000000 + i, 1000500 + i, i) for i in range(9)]
    shuffled = records[:]
    random.Random(4).shuffle(shuffled)
    want, got = read_text(lines(*records)), read_text(lines(*shuffled))
    for table in ("rdma_posts", "thread_states"):
        assert sorted(map(repr, got.tables[table])) == sorted(map(repr, want.tables[table]))


def test_doorbells_that_begin_in_a_later_block_find_their_posts(read_text, monkeypatch):
    from pipeline.sources import _text

    whole = lines(*(po(1000000 + 10 * i, 1000005 + 10 * i, i) for i in range(20)), "DB,1000192,10,11,3")
    monkeypatch.setattr(_text.blocks, "__kwdefaults__", {**_text.blocks.__kwdefaults__, "size": 400})
    found = read_text(whole).brief("rdma_posts", "enter_ns", "doorbell_ns")
    assert sorted(found) == [(1000000 + 10 * i, 1000192 if i == 19 else None) for i in range(20)]


@pytest.mark.parametrize(
    "line",
    [
        "PS,1005000,10,11,3,417,1,18446744073709551605,2,1,4096,5000,0",
        "PC,1005000,10,11,3,1,7,18446744073709551605,0,0,417",
        "SW,1005000,10,11,3,0,0,18446744073709551605,1,0,0,0",
        r"PO,1005000,\0,10,11,3,417,0,0,2,1,0,1,0,2,4096,0",
    ],
)
def test_a_number_that_does_not_fit_its_column_costs_its_own_line_only(read_text, line):
    read = read_text(lines(po(1000000, 1003000), line))
    assert (len(read.tables["rdma_posts"]), read.account.bad_lines) == (1, [line.encode()])


def test_maps_alone_are_unusable(data, read_file):
    for version in ("017", "023"):
        with pytest.raises(UnusableInput, match="no record of rdma-ebpf-csv-1"):
            read_file(data / "ebpf" / f"sample_json_forms_{version}.jsonl")
