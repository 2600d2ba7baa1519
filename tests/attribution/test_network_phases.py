"""Golden values whose phases no input format shows, through the same queries as any trace."""

from __future__ import annotations

from pipeline.attribution.phases import Message, attribute_phases

BETA = 50_000_000_000
SCHEDULE, WQE, DOORBELL, FETCH, RTT0 = 3_000, 300, 1_200, 500, 3_000


def proxy(count: int, size: int, *, one_at_a_time: bool) -> list[Message]:
    """One proxy posts `count` messages; the first is notified for 1 000 ns."""
    messages: list[Message] = []
    cpu, wire = 1_000, 0
    for _ in range(count):
        post = cpu + SCHEDULE
        exit_ns = post + WQE + DOORBELL
        wire = max(exit_ns + FETCH, wire) + -(-size * 10**9 // BETA)
        done = wire + RTT0
        notify = (0, 1_000) if not messages else None
        messages.append(Message(size, post, exit_ns, done, doorbell_ns=post + WQE, schedule=(cpu, post), notify=notify))
        cpu = done if one_at_a_time else exit_ns
    return messages


def attributed(messages: list[Message]) -> dict[str, int]:
    end = max(message.complete_ns or 0 for message in messages)
    return attribute_phases(messages, window=(0, end), beta_bytes_per_s=BETA, rtt0_ns=RTT0, fetch_ns=FETCH)


def test_g2_one_message_phase_by_phase() -> None:
    message = Message(114_688, 4_000, 5_500, 11_294, doorbell_ns=4_300, schedule=(1_000, 4_000), notify=(0, 1_000))
    assert attribute_phases(
        [message],
        window=(0, 20_000),
        compute=[(20_000, 30_000)],
        beta_bytes_per_s=BETA,
        rtt0_ns=RTT0,
        fetch_ns=FETCH,
    ) == {
        "ctl_notify": 1_000,
        "ctl_schedule": 3_000,
        "ctl_wqe": 300,
        "ctl_doorbell": 1_200,
        "ctl_fetch": 500,
        "rdma_transfer": 2_294,
        "net_latency": 3_000,
        "comm_unattributed": 8_706,
        "compute": 10_000,
    }


def test_g12_a_proxy_that_cant_feed_the_wire() -> None:
    messages = proxy(56, 114_688, one_at_a_time=False)
    assert messages[-1].complete_ns == 258_794
    assert attributed(messages) == {
        "rdma_transfer": 128_464,
        "ctl_schedule": 83_887,
        "ctl_wqe": 8_389,
        "ctl_doorbell": 33_554,
        "ctl_notify": 1_000,
        "ctl_fetch": 500,
        "net_latency": 3_000,
    }


def test_g12b_one_message_outstanding() -> None:
    messages = proxy(56, 114_688, one_at_a_time=True)
    assert messages[-1].complete_ns == 577_464
    assert attributed(messages) == {
        "rdma_transfer": 128_464,
        "ctl_schedule": 168_000,
        "ctl_wqe": 16_800,
        "ctl_doorbell": 67_200,
        "ctl_fetch": 28_000,
        "ctl_notify": 1_000,
        "blocking_rtt": 168_000,
    }


def test_g12c_larger_messages_hide_the_proxy_behind_the_wire() -> None:
    messages = proxy(7, 917_504, one_at_a_time=False)
    assert messages[-1].complete_ns == 137_457
    assert attributed(messages) == {
        "rdma_transfer": 128_457,
        "ctl_schedule": 3_334,
        "ctl_wqe": 333,
        "ctl_doorbell": 1_333,
        "ctl_notify": 1_000,
        "net_latency": 3_000,
    }
