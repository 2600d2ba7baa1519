-- report_worst: the step of a rank to look at, and a window around its longest stretch of exposed communication.
--
-- Inputs: report_steps, segments, categories
-- Output: one row, or none without segments
--   rank       BIGINT   rank
--   step       BIGINT   step
--   step_start_ns, step_end_ns  BIGINT  the step, ns on the run clock
--   start_ns   BIGINT   window: the stretch with a sixth of its length on either side, inside the step
--   end_ns     BIGINT   its end, exclusive
--   exposed_ns HUGEINT  exposed communication of that step, ns; 0: the run has none, and the step is the longest that counts
-- Assumes: segments of a (rank, step) tile it, so neighbours touch. A stretch is a run of communication segments without
--          anything else in between.
CREATE OR REPLACE TEMP TABLE report_worst AS
WITH exposed AS (
  SELECT g.rank, g.step, sum(g.end_ns - g.start_ns) AS exposed_ns
  FROM segments AS g
  JOIN categories AS c ON c.category = g.category
  WHERE c.comm
  GROUP BY g.rank, g.step
), worst AS (
  SELECT s.rank, s.step, s.start_ns, s.end_ns, coalesce(e.exposed_ns, 0) AS exposed_ns
  FROM report_steps AS s
  LEFT JOIN exposed AS e ON e.rank = s.rank AND e.step = s.step
  WHERE s.complete OR s.counted
  ORDER BY exposed_ns DESC, s.counted DESC, s.wall_ns DESC, s.rank, s.step
  LIMIT 1
), own AS (
  SELECT g.start_ns, g.end_ns, c.comm,
    sum(CASE WHEN c.comm THEN 0 ELSE 1 END) OVER (ORDER BY g.start_ns ROWS UNBOUNDED PRECEDING) AS stretch
  FROM segments AS g
  JOIN worst AS w ON w.rank = g.rank AND w.step = g.step
  JOIN categories AS c ON c.category = g.category
), longest AS (
  SELECT min(start_ns) AS start_ns, max(end_ns) AS end_ns
  FROM own
  WHERE comm
  GROUP BY stretch
  ORDER BY max(end_ns) - min(start_ns) DESC, start_ns
  LIMIT 1
)
SELECT w.rank, w.step, w.start_ns AS step_start_ns, w.end_ns AS step_end_ns,
  coalesce(greatest(w.start_ns, l.start_ns - (l.end_ns - l.start_ns) // 6), w.start_ns) AS start_ns,
  coalesce(least(w.end_ns, l.end_ns + (l.end_ns - l.start_ns) // 6), w.end_ns) AS end_ns,
  w.exposed_ns
FROM worst AS w
LEFT JOIN longest AS l ON true
WHERE EXISTS (SELECT 1 FROM segments AS g WHERE g.rank = w.rank AND g.step = w.step);
