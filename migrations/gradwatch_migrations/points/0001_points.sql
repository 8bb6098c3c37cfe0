-- One row a series. The axes are those of gradwatch.schema.Series; an empty text means that the axis does not apply.
CREATE TABLE series (
    id INTEGER PRIMARY KEY,
    run VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    source_key VARCHAR NOT NULL,
    stream VARCHAR NOT NULL,
    attempt BIGINT NOT NULL,
    stat VARCHAR NOT NULL,
    role VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    policy VARCHAR NOT NULL,
    scope VARCHAR NOT NULL,
    rank BIGINT NOT NULL
);

-- One row a write: the row of a (series, step) with the highest sequence wins, the others stay as audit.
-- Sequence numbers are dense within a run: 1, 2, 3 ... No index: sequence and series_id prune by row group, and an
-- index would cost the append most of its speed.
CREATE TABLE points (
    series_id INTEGER NOT NULL,
    sequence BIGINT NOT NULL,
    step BIGINT NOT NULL,
    wall_time DOUBLE NOT NULL,
    value DOUBLE NOT NULL,
    flags UTINYINT NOT NULL
);

-- One row a rollout; `number` counts the samples of a run in the order in which they came.
CREATE TABLE samples (
    run VARCHAR NOT NULL,
    number BIGINT NOT NULL,
    step BIGINT NOT NULL,
    role VARCHAR NOT NULL,
    agent VARCHAR NOT NULL,
    turn BIGINT NOT NULL,
    group_id VARCHAR NOT NULL,
    prompt VARCHAR NOT NULL,
    output VARCHAR NOT NULL,
    rewards MAP(VARCHAR, DOUBLE) NOT NULL,
    advantage DOUBLE,
    prompt_tokens BIGINT,
    output_tokens BIGINT,
    format_valid BOOLEAN,
    influence DOUBLE,
    flags BIGINT NOT NULL
);

-- One row an append, written in its transaction: the run's last sequence and sample numbers after it. A NULL batch_id
-- is an append that its caller does not retry; the constraint lets those repeat.
CREATE TABLE batches (
    run VARCHAR NOT NULL,
    batch_id VARCHAR,
    sequence BIGINT NOT NULL,
    sample BIGINT NOT NULL,
    UNIQUE (run, batch_id)
);
