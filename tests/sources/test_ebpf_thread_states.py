"""States of a thread from wake-ups and switches, against the rule in words."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

POST = "PO,1000000,1000100,10,11,3,417,0,0,2,1,0,1,0,2,4096,0\n"


def states(read):
    return sorted(read.brief("thread_states", "start_ns", "end_ns", "state", "cpu", "other_tid"))


def test_blocked_until_the_wake_up_then_runnable_then_running(read_text):
    read = read_text(POST + "SO,1000200,11,3,1\nWK,1000500,11,4,77,2\nSI,1000530,11,4,55\nSO,1000900,11,4,1\n")
    assert states(read) == [
        (1000200, 1000500, "blocked", None, 77),
        (1000500, 1000530, "runnable", None, 55),
        (1000530, 1000900, "running", 4, None),
    ]
    assert read.brief("thread_states", "node", "pid", "tid")[0] == ("n0", 10, 11)


def test_a_preempted_thread_is_runnable_and_says_who_runs_instead(read_text):
    for state in ("0", "256", "2048"):
        read = read_text(POST + f"SI,1000150,11,3,0\nSO,1000200,11,3,{state}\nSI,1000700,11,3,66\nSO,1000710,11,3,16\n")
        assert states(read) == [
            (1000150, 1000200, "running", 3, None),
            (1000200, 1000700, "runnable", None, 66),
            (1000700, 1000710, "running", 3, None),
        ]


def test_a_wake_up_that_overtakes_the_sleepers_switch_leaves_it_runnable(read_text):
    read = read_text(
        POST + "SI,1000150,11,3,0\nWK,1000199,11,3,77,2\nSO,1000200,11,3,1\nSI,1000230,11,3,0\nSO,1000300,11,3,64\n"
    )
    assert states(read)[:3] == [
        (1000150, 1000200, "running", 3, None),
        (1000200, 1000230, "runnable", None, 0),
        (1000230, 1000300, "running", 3, None),
    ]


def test_a_lost_switch_leaves_a_hole_not_a_guess(read_text):
    read = read_text(
        POST + "SI,1000150,11,3,0\nSI,1000700,11,3,66\nSO,1000800,11,3,1\nSO,1000900,11,3,1\nWK,1001000,11,3,7,2\n"
    )
    assert states(read) == [
        (1000700, 1000800, "running", 3, None),
        (1000900, 1001000, "blocked", None, 7),
    ]


def test_the_last_state_lasts_to_the_last_record(read_text):
    read = read_text(POST + "SI,1000150,11,3,0\nHB,1000950,x\n")
    assert states(read) == [(1000150, 1000950, "running", 3, None)]


def test_a_thread_that_has_exited_has_no_state(read_text):
    read = read_text(POST + "SI,1000150,11,3,0\nSO,1000200,11,3,16\nHB,1000950,x\n")
    assert states(read) == [(1000150, 1000200, "running", 3, None)]


def test_libbpf_switches_count_for_threads_of_posting_processes_only(read_text):
    """One record is both halves; the other thread of it may be anybody's."""
    post = "PS,1000000,10,11,1,417,0,1,2,4096,5000,0\nPX,1000100,10,11,1,0,0,0,0,0,0,0\n"
    switch = "SW,1000200,10,11,1,11,0,99,1,0,0,0\nSW,1000300,98,99,1,99,0,11,0,1,0,0\nMETA,end,events=4,lost=0\n"
    assert sorted(read_text(post + switch).brief("thread_states", "tid", "start_ns", "end_ns", "state")) == [
        (11, 1000200, 1000300, "blocked"),
    ]


def oracle(events):
    """The rule, event by event: (start, end, state) of one thread."""
    out, since, now, woken = [], None, None, False
    for at, kind, state in events:
        if kind == "WK":
            if now == "running":
                woken = True
                continue
            if now in ("blocked", "runnable"):
                out.append((since, at, now))
            now = "runnable"
        elif kind == "SI":
            if now in ("blocked", "runnable"):
                out.append((since, at, now))
            now = "running"
        else:
            if now == "running":
                out.append((since, at, now))
            now = "blocked" if state and not woken else "runnable"
        since, woken = at, False
    return out + ([(since, events[-1][0] + 10, now)] if events else [])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from(["WK", "SI", "SO"]), st.sampled_from([0, 1, 2])), max_size=14),
    st.integers(90, 400),
)
def test_states_are_those_of_the_rule(read_text, monkeypatch, kinds, block_bytes):
    from pipeline.sources import _ebpf, _text

    # Small blocks, no slack: what a block leaves open must go on in the next one.
    monkeypatch.setattr(_text.blocks, "__kwdefaults__", {**_text.blocks.__kwdefaults__, "size": block_bytes})
    monkeypatch.setattr(_ebpf, "SLACK_NS", 25)
    events = [(1_000_010 + 10 * i, kind, state) for i, (kind, state) in enumerate(kinds)]
    form = {"WK": "WK,{},11,3,77,2", "SI": "SI,{},11,3,5", "SO": "SO,{},11,3,{}"}
    text = POST.replace("1000100", "1000005") + "".join(
        form[kind].format(at, state) + "\n" for at, kind, state in events
    )
    text += f"HB,{events[-1][0] + 10 if events else 1_000_010},x\n"
    got = [(start, end, state) for start, end, state, _, _ in states(read_text(text))]
    assert got == [each for each in oracle(events) if each[0] < each[1]]
