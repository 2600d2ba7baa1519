-- _pairs: which completion belongs to which post: FIFO per queue pair, resynchronised by wr_id.
--
-- Inputs: _posts, _completions
-- Output:
--   qp_id       BIGINT   queue pair (_queue_pairs)
--   done_no     BIGINT   completable post (_posts)
--   seen_ns     BIGINT   its completion was seen, ns
--   status      BIGINT   ibv_wc_status
-- Assumes: the rule is: a completion belongs to the first post in flight whose wr_id it carries; posts before that one
--          have lost theirs; a completion that no post in flight carries has lost its post. Three ways to the same
--          answer, the cheapest that holds for a queue pair:
--          (1) ordinals agree everywhere: pair by ordinal;
--          (2) no id is in flight twice: the latest post with that id, where it comes after all paired before. The test
--              is exact: an earlier post with the same id must not come after the last paired one;
--          (3) else follow runs of agreement: a run keeps post − completion constant; where it breaks, the next
--              completion that finds its id among the posts in flight begins the next run. One recursion a break.
CREATE OR REPLACE TEMP TABLE _pairs AS
WITH RECURSIVE dirty AS (
    SELECT DISTINCT qp_id FROM _completions WHERE NOT in_step
),
posts AS MATERIALIZED (
    SELECT
        qp_id,
        done_no,
        match_id,
        enter_ns,
        lag(done_no, 1, 0) OVER (PARTITION BY qp_id, match_id ORDER BY done_no) AS same_id_before
    FROM _posts
    SEMI JOIN dirty USING (qp_id)
    WHERE asks
),
latest AS (
    SELECT c.qp_id, c.match_id, c.seen_ns, c.status, coalesce(p.done_no, 0) AS done_no, p.same_id_before
    FROM (SELECT * FROM _completions SEMI JOIN dirty USING (qp_id)) AS c
    ASOF LEFT JOIN posts AS p
        ON c.qp_id = p.qp_id AND c.match_id = p.match_id AND c.seen_ns >= p.enter_ns
),
-- Completions of one poll may carry one time: their posts' order is theirs.
ordered AS MATERIALIZED (
    SELECT
        *,
        row_number() OVER in_order AS seen_no,
        coalesce(max(done_no) OVER (in_order ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS paired_before
    FROM latest
    WINDOW in_order AS (PARTITION BY qp_id ORDER BY seen_ns, done_no, match_id, status)
),
ambiguous AS MATERIALIZED (
    SELECT DISTINCT qp_id FROM ordered WHERE done_no > paired_before AND same_id_before > paired_before
),
hard_posts AS MATERIALIZED (
    SELECT qp_id, done_no, match_id, enter_ns FROM posts SEMI JOIN ambiguous USING (qp_id)
),
hard AS MATERIALIZED (
    SELECT qp_id, seen_no, match_id, seen_ns, status, done_no AS latest_no FROM ordered SEMI JOIN ambiguous USING (qp_id)
),
-- A row: the run before ended at seen_no = ended_at with its done_no - seen_no = shift; the next one begins at (seen_no, done_no).
runs AS (
    SELECT qp_id, 1::BIGINT AS seen_no, 1::BIGINT AS done_no, 1::BIGINT AS began_at, 1::BIGINT AS ended_at, 0::BIGINT AS shift
    FROM ambiguous
    UNION ALL
    SELECT
        b.qp_id,
        n.seen_no,
        (
            SELECT min(p.done_no) FROM hard_posts AS p
            WHERE p.qp_id = b.qp_id AND p.match_id = n.match_id AND p.done_no >= b.broke_at + b.shift
        ) AS done_no,
        b.seen_no AS began_at,
        b.broke_at AS ended_at,
        b.shift
    FROM (
        SELECT
            r.qp_id,
            r.seen_no,
            r.done_no - r.seen_no AS shift,
            coalesce(
                min(c.seen_no) FILTER (NOT coalesce(p.match_id = c.match_id AND p.enter_ns <= c.seen_ns, false)),
                max(c.seen_no) + 1
            ) AS broke_at
        FROM runs AS r
        JOIN hard AS c ON r.qp_id = c.qp_id AND c.seen_no >= r.seen_no
        LEFT JOIN hard_posts AS p ON c.qp_id = p.qp_id AND p.done_no = c.seen_no + r.done_no - r.seen_no
        GROUP BY r.qp_id, r.seen_no, r.done_no
    ) AS b
    LEFT JOIN LATERAL (
        SELECT c.seen_no, c.match_id
        FROM hard AS c
        WHERE c.qp_id = b.qp_id AND c.seen_no >= b.broke_at AND c.latest_no >= b.broke_at + b.shift
        ORDER BY c.seen_no
        LIMIT 1
    ) AS n ON true
)
SELECT c.qp_id, c.seen_no AS done_no, c.seen_ns, c.status
FROM _completions AS c
ANTI JOIN dirty USING (qp_id)
UNION ALL
SELECT o.qp_id, o.done_no, o.seen_ns, o.status
FROM ordered AS o
ANTI JOIN ambiguous USING (qp_id)
WHERE o.done_no > o.paired_before
UNION ALL
SELECT c.qp_id, c.seen_no + r.shift AS done_no, c.seen_ns, c.status
FROM runs AS r
JOIN hard AS c ON r.qp_id = c.qp_id AND c.seen_no >= r.began_at AND c.seen_no < r.ended_at;
