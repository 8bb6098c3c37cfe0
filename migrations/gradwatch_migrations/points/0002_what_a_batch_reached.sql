-- How far a run got, without a look at its points: the newest attempt that a batch has points of, that attempt's highest step
-- among them (NULL for a batch without points), and the Unix time of the commit.
ALTER TABLE batches ADD COLUMN attempt BIGINT DEFAULT 1;
ALTER TABLE batches ADD COLUMN last_step BIGINT;
ALTER TABLE batches ADD COLUMN committed DOUBLE DEFAULT 0;

UPDATE batches
SET attempt = reached.attempt, last_step = reached.last_step
FROM (
    SELECT run, attempt, max(step) AS last_step
    FROM points JOIN series ON points.series_id = series.id
    GROUP BY run, attempt
    QUALIFY attempt = max(attempt) OVER (PARTITION BY run)
) AS reached
WHERE batches.run = reached.run;

-- A restart makes other samples of the same steps.
ALTER TABLE samples ADD COLUMN attempt BIGINT DEFAULT 1;
