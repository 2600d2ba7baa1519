-- _participants: which operations of the ranks are one collective, and by which rule it is known.
--
-- Inputs: _operations, ranks, gpu_ops, comm_groups, run_config, clock_offsets
-- Output:
--   rank         BIGINT   rank
--   op_id        BIGINT   its operation (_operations)
--   instance_id  BIGINT   the collective; counts from 0 by (start, rule, key)
--   basis        VARCHAR  communicator, peer, communicator_order, group, run_order or node_order
-- Assumes: one rule an operation, the first that it can be put to:
--   communicator         its communicator and sequence number are given
--   peer                 its peer is given: the k-th one of the pair, if both have as many
--   communicator_order   its communicator is given: the k-th of that name and size, if all members have as many
--   group                run.toml has groups: the smallest that holds its rank and whose members all have as
--                        many operations of that name and size; two such of one size are ambiguous
--   run_order            the k-th of that name on each rank of the run, if all of these share an instant
--   node_order           the same on each rank of the node
--   What stays ambiguous has no row. An operation that nothing names goes by its kernel's name. Ranks without
--   any GPU operation (unusable file) are left out. Two nodes' clocks share an instant within their errors:
--   those of clock_offsets, before there are any run_config.clock_error_ns; one node's clock is one clock.
--   Errors are doubled, so that half of the coarse one stays an integer.
CREATE OR REPLACE TEMP TABLE _participants AS
WITH usable AS (
    SELECT rank, min(node) AS node
    FROM ranks
    WHERE rank IN (SELECT rank FROM gpu_ops)
    GROUP BY rank
),
node_errors AS (
    SELECT nodes.node, coalesce(2 * c.error_ns, r.clock_error_ns) AS doubled_ns
    FROM (SELECT DISTINCT node FROM usable) AS nodes
    CROSS JOIN run_config AS r
    LEFT JOIN clock_offsets AS c ON c.node = nodes.node AND c.status <> 'unaligned'
),
ops AS (
    SELECT
        o.rank, o.op_id, u.node, o.comm_id, o.seq, o.peer_rank, o.start_ns, o.end_ns, o.op,
        CASE WHEN o.op IS NULL OR o.op = 'unknown' THEN o.kernel ELSE o.op END AS name,
        coalesce(o.bytes, -1) AS bytes
    FROM _operations AS o JOIN usable AS u USING (rank)
),
keyed AS (
    SELECT
        *,
        CASE
            WHEN peer_rank IS NOT NULL THEN 'peer'
            WHEN comm_id IS NOT NULL AND seq IS NOT NULL THEN 'communicator'
            WHEN comm_id IS NOT NULL THEN 'communicator_order'
            WHEN EXISTS (FROM comm_groups) THEN 'group'
            ELSE 'order'
        END AS rule,
        -- A send is its receiver's receive; a SendRecv is the same from both ends.
        CASE
            WHEN peer_rank IS NULL THEN NULL
            WHEN op = 'Send' THEN rank || '>' || peer_rank
            WHEN op = 'Recv' THEN peer_rank || '>' || rank
            ELSE least(rank, peer_rank) || '=' || greatest(rank, peer_rank)
        END AS channel
    FROM ops
),
groups AS (
    -- The same members listed twice are one communicator.
    SELECT min(group_id) AS group_id, members, len(members) AS size
    FROM (SELECT group_id, list(DISTINCT rank ORDER BY rank) AS members FROM comm_groups GROUP BY group_id)
    GROUP BY members
),
group_members AS (
    SELECT group_id, size, unnest(members) AS rank FROM groups
),
group_sizes AS (
    SELECT group_id, count(*) AS n FROM group_members SEMI JOIN usable USING (rank) GROUP BY group_id
),
counts AS (
    SELECT rank, name, bytes, count(*) AS n FROM keyed WHERE rule = 'group' GROUP BY ALL
),
fitting_groups AS (
    SELECT m.group_id, m.size, c.name, c.bytes
    FROM group_members AS m
    JOIN counts AS c USING (rank)
    JOIN group_sizes AS g USING (group_id)
    GROUP BY m.group_id, m.size, g.n, c.name, c.bytes
    HAVING min(c.n) = max(c.n) AND count(*) = g.n
),
preferred AS (
    SELECT m.rank, f.name, f.bytes, f.group_id, f.size,
        count(*) OVER (PARTITION BY m.rank, f.name, f.bytes, f.size) AS as_small
    FROM fitting_groups AS f
    JOIN group_members AS m USING (group_id)
    SEMI JOIN usable ON usable.rank = m.rank
    QUALIFY f.size = min(f.size) OVER (PARTITION BY m.rank, f.name, f.bytes)
),
chosen_group AS (
    SELECT rank, name, bytes, group_id FROM preferred WHERE as_small = 1
),
-- Rules that need equal counts on all members: (rule, scope, name, bytes) is the key.
scoped AS (
    SELECT rank, op_id, start_ns, rule AS basis,
        CASE rule WHEN 'peer' THEN coalesce(comm_id, '') || ' ' || channel
            WHEN 'communicator' THEN comm_id || ' ' || seq ELSE comm_id END AS scope,
        CASE rule WHEN 'peer' THEN '' WHEN 'communicator' THEN op ELSE name END AS name,
        CASE rule WHEN 'communicator_order' THEN bytes ELSE -1 END AS bytes
    FROM keyed
    WHERE rule IN ('peer', 'communicator', 'communicator_order')
    UNION ALL
    SELECT k.rank, k.op_id, k.start_ns, 'group', g.group_id::VARCHAR, k.name, k.bytes
    FROM keyed AS k JOIN chosen_group AS g ON g.rank = k.rank AND g.name = k.name AND g.bytes = k.bytes
    WHERE k.rule = 'group'
),
numbered AS (
    SELECT *, row_number() OVER (PARTITION BY basis, scope, name, bytes, rank ORDER BY start_ns, op_id) AS k
    FROM scoped
),
scope_counts AS (
    SELECT basis, scope, name, bytes, min(n) = max(n) AS equal, count(*) AS n_ranks
    FROM (SELECT basis, scope, name, bytes, rank, count(*) AS n FROM scoped GROUP BY ALL)
    GROUP BY ALL
),
-- A group counts where each of its members takes it.
by_scope AS (
    SELECT n.rank, n.op_id, n.start_ns, n.basis, n.scope, n.name, n.bytes, n.k
    FROM numbered AS n
    JOIN scope_counts AS s USING (basis, scope, name, bytes)
    LEFT JOIN group_sizes AS g ON n.basis = 'group' AND g.group_id::VARCHAR = n.scope
    WHERE s.equal AND s.n_ranks > 1 AND (n.basis <> 'group' OR s.n_ranks = g.n)
),
ordinal AS (
    SELECT k.rank, k.op_id, k.node, k.name, k.start_ns, k.end_ns, e.doubled_ns,
        row_number() OVER (PARTITION BY k.rank, k.name ORDER BY k.start_ns, k.op_id) AS k
    FROM keyed AS k JOIN node_errors AS e USING (node)
    WHERE k.rule = 'order'
),
on_node AS (
    SELECT name, k, node, count(*) AS n,
        max(start_ns) < min(end_ns) OR count(*) = 1 AS share,
        max(start_ns) AS last_start_ns, min(end_ns) AS first_end_ns, any_value(doubled_ns) AS doubled_ns
    FROM ordinal
    GROUP BY ALL
),
node_sizes AS (
    SELECT node, count(*) AS n FROM usable GROUP BY node
),
in_run AS (
    SELECT name, k
    FROM on_node CROSS JOIN (SELECT count(*) AS n_usable FROM usable)
    GROUP BY ALL
    HAVING sum(n) > 1
        AND sum(n) = any_value(n_usable)
        AND bool_and(share)
        AND (count(*) = 1 OR max(2 * last_start_ns - doubled_ns) < min(2 * first_end_ns + doubled_ns))
),
by_order AS (
    SELECT rank, op_id, start_ns, 'run_order' AS basis, '' AS scope, name, -1 AS bytes, k
    FROM ordinal SEMI JOIN in_run USING (name, k)
    UNION ALL
    SELECT o.rank, o.op_id, o.start_ns, 'node_order', o.node, o.name, -1, o.k
    FROM ordinal AS o
    JOIN on_node AS n USING (name, k, node)
    JOIN node_sizes AS s USING (node)
    ANTI JOIN in_run ON in_run.name = o.name AND in_run.k = o.k
    WHERE n.share AND n.n = s.n AND s.n > 1
),
everything AS (
    SELECT * FROM by_scope UNION ALL SELECT * FROM by_order
),
instances AS (
    SELECT basis, scope, name, bytes, k,
        row_number() OVER (ORDER BY min(start_ns), basis, scope, name, bytes, k) - 1 AS instance_id
    FROM everything
    GROUP BY basis, scope, name, bytes, k
)
SELECT e.rank, e.op_id, i.instance_id, e.basis
FROM everything AS e JOIN instances AS i USING (basis, scope, name, bytes, k)
ORDER BY i.instance_id, e.rank;
