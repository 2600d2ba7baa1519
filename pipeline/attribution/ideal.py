"""The run on a network that takes no time: ranks only do their own work and wait for each other at collectives.

That time, T*, splits communication efficiency into serialisation (waiting for each other) and transfer (the network). A
collective ends for each participant when the last of them arrives, and no earlier than that participant's own time lets
it. So one pass over collectives, in the order of their last arrivals, carries all ranks at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import duckdb

Ints = NDArray[np.int64]
MOST_COLLECTIVES = 200_000
"""Beyond so many the pass, some 15 µs each, would take longer than the rest of the summary."""


def why_no_ideal(connection: duckdb.DuckDBPyConnection) -> str | None:
    """Why T* can't be told of this run; None where it can."""
    row = connection.execute(
        """SELECT (SELECT count(DISTINCT rank) FROM ranks WHERE rank IS NOT NULL),
            (SELECT count(DISTINCT rank) FROM _counted_steps),
            (SELECT max(expected_ranks) FROM run_config),
            (SELECT count(*) FROM _operations ANTI JOIN _participants USING (rank, op_id)),
            (SELECT count(DISTINCT instance_id) FROM _participants),
            (SELECT count(*) FROM (
                SELECT p.instance_id FROM _participants AS p JOIN _operations AS o USING (rank, op_id)
                GROUP BY p.instance_id HAVING max(o.n_ranks) > count(DISTINCT p.rank)))"""
    ).fetchone()
    assert row is not None
    ranks, counted, expected, unmatched, collectives, short = (int(value or 0) for value in row)
    if ranks < 2:
        return "one rank waits for nobody"
    if max(ranks, expected) > counted:
        return f"{max(ranks, expected) - counted} ranks have no step that counts"
    if collectives == 0 or unmatched > 0:
        return f"of {unmatched} operations the participants are not known"
    if short > 0:
        return f"{short} collectives lack participants that were not captured"
    if collectives > MOST_COLLECTIVES:
        return f"{collectives} collectives are more than the {MOST_COLLECTIVES} that it is worked out for"
    return None


def ideal_network_ns(connection: duckdb.DuckDBPyConnection) -> int:
    """T* over the counted steps, ns: of the rank that takes longest. `why_no_ideal` must have found nothing against it."""
    marks = connection.execute(
        """SELECT t.rank, t.start_ns, t.end_ns, t.local_start_ns, t.local_end_ns
        FROM _local_times AS t JOIN _counted_steps AS c ON c.rank = t.rank AND c.step = t.step
        WHERE t.op_id IS NULL ORDER BY t.rank, t.start_ns"""
    ).fetchnumpy()
    arrivals = connection.execute("FROM _arrivals ORDER BY place, rank, end_ns").fetchnumpy()
    names, mark_rank = np.unique(np.asarray(marks["rank"], np.int64), return_inverse=True)
    rank = np.searchsorted(names, np.asarray(arrivals["rank"], np.int64))
    first = np.zeros(len(names), np.int64)
    first[mark_rank[::-1]] = np.asarray(marks["local_start_ns"], np.int64)[::-1]
    place, arrive, leave = (
        np.asarray(arrivals[name], np.int64) for name in ("place", "local_start_ns", "local_end_ns")
    )
    after = play(rank, place, arrive, leave, first)
    # On its own time a rank is as far ahead of an edge of a step as it was after the last collective before it.
    late = np.concatenate([np.zeros_like(first), after - leave])
    at = np.concatenate([np.full(len(names), np.iinfo(np.int64).min), np.asarray(arrivals["end_ns"], np.int64)])
    owner = np.concatenate([np.arange(len(names)), rank])
    order = np.lexsort((at, owner))
    edges = [np.asarray(marks[name], np.int64) for name in ("start_ns", "end_ns")]
    local = [np.asarray(marks[name], np.int64) for name in ("local_start_ns", "local_end_ns")]
    times = [
        value + late[order][_last(owner[order], at[order], mark_rank, edge)]
        for value, edge in zip(local, edges, strict=True)
    ]
    return int(np.bincount(mark_rank, times[1] - times[0]).max())


def play(rank: Ints, place: Ints, local_start_ns: Ints, local_end_ns: Ints, first_ns: Ints) -> Ints:
    """When each participant leaves each collective, ns: rows of one place are one collective, in ascending order.

    rank: index of the participant. first_ns: own time at which each rank starts, which is also when it does.
    """
    now, own = first_ns.copy(), first_ns.copy()
    after = np.empty_like(local_end_ns)
    edges = np.flatnonzero(np.diff(place)) + 1
    for rows in np.split(np.arange(len(place)), edges) if len(place) else []:
        who = rank[rows]
        arrived = now[who] + local_start_ns[rows] - own[who]
        left = np.maximum(now[who] + local_end_ns[rows] - own[who], arrived.max())
        after[rows] = left
        now[who], own[who] = left, local_end_ns[rows]
    return after


def _last(owner: Ints, at: Ints, who: Ints, edge: Ints) -> Ints:
    """Row of each `who` with the greatest `at` up to `edge`; rows are sorted by (owner, at), each owner's first is least."""
    rows = np.concatenate([np.stack([owner, at]), np.stack([who, edge])], axis=1)
    asked = np.r_[np.zeros(len(owner), bool), np.ones(len(who), bool)]
    order = np.lexsort((asked, rows[1], rows[0]))
    found = np.empty(len(asked), np.int64)
    found[order] = np.cumsum(~asked[order]) - 1
    return found[len(owner) :]
