-- What model calls used, by day (counted from 1970 in UTC) and agent. It outlives the tasks.
CREATE TABLE spending (
    day           INTEGER NOT NULL,
    agent         TEXT    NOT NULL,
    calls         INTEGER NOT NULL,
    input_tokens  INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost_pico_usd INTEGER NOT NULL,
    PRIMARY KEY (day, agent)
) STRICT, WITHOUT ROWID;
INSERT INTO spending
    SELECT events.at / 86400000000, tasks.assigned_agent, count(*),
           sum(body ->> '$.usage.input_tokens'), sum(body ->> '$.usage.output_tokens'),
           sum(body ->> '$.usage.cost_pico_usd')
    FROM events JOIN tasks ON substr(events.stream, 2) = tasks.task_id
    WHERE substr(events.stream, 1, 1) = x'74' AND body ->> '$.type' = 'model_answered'
    GROUP BY 1, 2;
