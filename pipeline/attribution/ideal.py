"""The run on a network that takes no time: ranks only do their own work and wait for each other at collectives.

That time, T*, splits communication efficiency into serialisation (waiting for each other) and transfer (the network). A
collective ends for each participant when the last of them arrives, and no earlier than that participant's own time lets
it. So one pass over collectives, in the order of their last arrivals, carries all ranks at once.

The network's parts are then given back one after the other (`categories.GIVEN_BACK`): each makes the run longer by a
factor, and these, with one for what is left, make up transfer efficiency.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline.model.categories import GIVEN_BACK

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


def ideal_network_ns(connection: duckdb.DuckDBPyConnection) -> list[int]:
    """Time of the counted steps, ns, of the rank that takes longest: T*, then with each part of the network given back.

    `why_no_ideal` must have found nothing against it.
    """
    marks = connection.execute(
        """SELECT t.level, t.rank, t.start_ns, t.end_ns, t.local_start_ns, t.local_end_ns
        FROM _local_times AS t JOIN _counted_steps AS c ON c.rank = t.rank AND c.step = t.step
        WHERE t.op_id IS NULL ORDER BY t.level, t.rank, t.start_ns"""
    ).fetchnumpy()
    arrivals = connection.execute("FROM _arrivals ORDER BY level, place, rank, end_ns").fetchnumpy()
    levels = len(GIVEN_BACK) + 1
    # A row of these for each level; what is no time of a rank's own is the same at all of them.
    mark = {name: np.asarray(values, np.int64).reshape(levels, -1) for name, values in marks.items()}
    arrival = {name: np.asarray(values, np.int64).reshape(levels, -1) for name, values in arrivals.items()}
    names, mark_rank = np.unique(mark["rank"][0], return_inverse=True)
    rank = np.searchsorted(names, arrival["rank"][0])
    first = np.zeros((levels, len(names)), np.int64)
    first[:, mark_rank[::-1]] = mark["local_start_ns"][:, ::-1]
    leave = arrival["local_end_ns"]
    after = play(rank, arrival["place"][0], arrival["local_start_ns"], leave, first)
    # On its own time a rank is as far ahead of an edge of a step as it was after the last collective before it.
    late = np.concatenate([np.zeros_like(first), after - leave], axis=1)
    at = np.concatenate([np.full(len(names), np.iinfo(np.int64).min), arrival["end_ns"][0]])
    owner = np.concatenate([np.arange(len(names)), rank])
    order = np.lexsort((at, owner))
    start, end = (
        mark[f"local_{edge}_ns"] + late[:, order[_last(owner[order], at[order], mark_rank, mark[f"{edge}_ns"][0])]]
        for edge in ("start", "end")
    )
    whole = np.zeros((levels, len(names)), np.int64)
    for level in range(levels):
        np.add.at(whole[level], mark_rank, (end - start)[level])
    return [int(longest) for longest in whole.max(axis=1)]


def play(rank: Ints, place: Ints, local_start_ns: Ints, local_end_ns: Ints, first_ns: Ints) -> Ints:
    """When each participant leaves each collective, ns: columns of one place are one collective, in ascending order.

    rank: index of the participant. local_*_ns, first_ns (own time at which each rank starts, which is also when it
    does): any number of runs of the same collectives, a row each.
    """
    now, own = first_ns.copy(), first_ns.copy()
    after = np.empty_like(local_end_ns)
    edges = np.flatnonzero(np.diff(place)) + 1
    for rows in np.split(np.arange(len(place)), edges) if len(place) else []:
        who = rank[rows]
        arrived = now[..., who] + local_start_ns[..., rows] - own[..., who]
        left = np.maximum(now[..., who] + local_end_ns[..., rows] - own[..., who], arrived.max(axis=-1, keepdims=True))
        after[..., rows] = left
        now[..., who], own[..., who] = left, local_end_ns[..., rows]
    return after


def _last(owner: Ints, at: Ints, who: Ints, edge: Ints) -> Ints:
    """Row of each `who` with the greatest `at` up to `edge`; rows are sorted by (owner, at), each owner's first is least."""
    rows = np.concatenate([np.stack([owner, at]), np.stack([who, edge])], axis=1)
    asked = np.r_[np.zeros(len(owner), bool), np.ones(len(who), bool)]
    order = np.lexsort((asked, rows[1], rows[0]))
    found = np.empty(len(asked), np.int64)
    found[order] = np.cumsum(~asked[order]) - 1
    return found[len(owner) :]
