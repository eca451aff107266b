"""The tables, and the migrations between versions. `PRAGMA user_version` counts the applied migrations.

Runs are ordered by `job.id`, the order of insertion. Every list is served in that order directly from an index, with one index
scan per phase, so that finished runs cost nothing. Counts are maintained by triggers.
"""

from __future__ import annotations

import sqlite3

_FIRST = """
CREATE TABLE series (
    namespace TEXT NOT NULL,
    series    TEXT NOT NULL,
    last      INTEGER NOT NULL,
    PRIMARY KEY (namespace, series)
) WITHOUT ROWID;

CREATE TABLE job (
    id        INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    series    TEXT NOT NULL,
    number    INTEGER NOT NULL,
    phase     TEXT NOT NULL,
    labels    TEXT NOT NULL,
    body      BLOB NOT NULL
);
CREATE UNIQUE INDEX job_by_name ON job (namespace, name);
CREATE INDEX job_by_number ON job (namespace, series, number);
CREATE INDEX job_by_phase ON job (phase, id);
CREATE INDEX job_in_namespace ON job (namespace, phase, id);
CREATE INDEX job_in_series ON job (namespace, series, phase, id);

CREATE TABLE job_label (
    key   TEXT NOT NULL,
    value TEXT NOT NULL,
    job   INTEGER NOT NULL,
    PRIMARY KEY (key, value, job)
) WITHOUT ROWID;
CREATE INDEX job_label_by_job ON job_label (job);

CREATE TRIGGER job_labelled AFTER INSERT ON job WHEN new.labels <> '{}' BEGIN
    INSERT INTO job_label SELECT key, value, new.id FROM json_each(new.labels);
END;
CREATE TRIGGER job_relabelled AFTER UPDATE OF labels ON job WHEN old.labels <> new.labels BEGIN
    DELETE FROM job_label WHERE job = old.id;
    INSERT INTO job_label SELECT key, value, new.id FROM json_each(new.labels);
END;

-- An empty namespace or series stands for all of them.
CREATE TABLE job_count (
    namespace TEXT NOT NULL,
    series    TEXT NOT NULL,
    phase     TEXT NOT NULL,
    n         INTEGER NOT NULL,
    PRIMARY KEY (namespace, series, phase)
) WITHOUT ROWID;
CREATE TRIGGER job_arrives AFTER INSERT ON job BEGIN
    INSERT INTO job_count VALUES
        (new.namespace, new.series, new.phase, 1), (new.namespace, '', new.phase, 1),
        ('', new.series, new.phase, 1), ('', '', new.phase, 1)
        ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER job_moves AFTER UPDATE OF phase ON job WHEN old.phase <> new.phase BEGIN
    UPDATE job_count SET n = n - 1
        WHERE namespace IN (old.namespace, '') AND series IN (old.series, '') AND phase = old.phase;
    INSERT INTO job_count VALUES
        (new.namespace, new.series, new.phase, 1), (new.namespace, '', new.phase, 1),
        ('', new.series, new.phase, 1), ('', '', new.phase, 1)
        ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER job_leaves AFTER DELETE ON job BEGIN
    UPDATE job_count SET n = n - 1
        WHERE namespace IN (old.namespace, '') AND series IN (old.series, '') AND phase = old.phase;
    DELETE FROM job_label WHERE job = old.id;
    DELETE FROM task WHERE job = old.id;
    DELETE FROM point WHERE job = old.id;
    DELETE FROM curve WHERE job = old.id;
END;

CREATE TABLE task (
    job     INTEGER NOT NULL,
    role    TEXT NOT NULL,
    "index" INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    body    BLOB NOT NULL,
    PRIMARY KEY (job, role, "index", attempt)
) WITHOUT ROWID;

CREATE TABLE event (
    id      INTEGER PRIMARY KEY,
    time    REAL NOT NULL,
    run     TEXT NOT NULL,
    subject TEXT NOT NULL,
    reason  TEXT NOT NULL,
    message TEXT NOT NULL
);
CREATE INDEX event_by_run ON event (run, id);

-- A curve is what one task reports under one set of names; its points hold only the numbers, in that order.
CREATE TABLE curve (
    id     INTEGER PRIMARY KEY,
    job    INTEGER NOT NULL,
    task   TEXT NOT NULL,
    source TEXT NOT NULL,
    names  TEXT NOT NULL,
    n      INTEGER NOT NULL,
    UNIQUE (job, task, source, names)
);
CREATE TABLE point (
    job   INTEGER NOT NULL,
    curve INTEGER NOT NULL,
    seq   INTEGER NOT NULL,
    time  REAL NOT NULL,
    step  INTEGER,
    data  BLOB NOT NULL,
    PRIMARY KEY (job, curve, seq)
) WITHOUT ROWID;
"""

_LONG_CURVES = """
ALTER TABLE curve ADD COLUMN stride INTEGER NOT NULL DEFAULT 1;
ALTER TABLE curve ADD COLUMN seen INTEGER NOT NULL DEFAULT 0;
ALTER TABLE curve ADD COLUMN last_time REAL;
ALTER TABLE curve ADD COLUMN last_step INTEGER;
ALTER TABLE curve ADD COLUMN last_data BLOB;
UPDATE curve SET seen = n;
"""

_RETENTION = """
ALTER TABLE job ADD COLUMN logs_until REAL;
ALTER TABLE job ADD COLUMN record_until REAL;
CREATE INDEX job_by_logs_until ON job (logs_until) WHERE logs_until IS NOT NULL;
CREATE INDEX job_by_record_until ON job (record_until) WHERE record_until IS NOT NULL;
"""

_QUEUES = """
CREATE TABLE queue (
    name TEXT PRIMARY KEY,
    body BLOB NOT NULL
) WITHOUT ROWID;
-- One row: what the scheduler remembers, in its own words.
CREATE TABLE memory (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    body BLOB NOT NULL
);
"""

_SERVICES = """
CREATE TABLE service (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    body      BLOB NOT NULL,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;
"""

_TRACKING = """
-- What MLflow clients tell: runs, experiments, models. `owner` is the run of ours that it is forgotten with.
CREATE TABLE tracked (
    id        INTEGER PRIMARY KEY,
    kind      TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    grp       TEXT NOT NULL,
    owner     TEXT NOT NULL,
    body      BLOB NOT NULL
);
CREATE UNIQUE INDEX tracked_by_name ON tracked (kind, namespace, name);
CREATE INDEX tracked_by_group ON tracked (kind, namespace, grp, id);
CREATE INDEX tracked_by_owner ON tracked (owner) WHERE owner > '';
-- The curves of a tracked run that is no job bear its id as a negative number.
CREATE TRIGGER tracked_leaves AFTER DELETE ON tracked BEGIN
    DELETE FROM point WHERE job = -old.id;
    DELETE FROM curve WHERE job = -old.id;
END;
"""

_JOURNAL = """
-- One row: the number of the last entry of the journal that this file has.
CREATE TABLE IF NOT EXISTS journal (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    last INTEGER NOT NULL
);
INSERT OR IGNORE INTO journal VALUES (1, 0);
"""

_RECEIPTS = """
-- What requests with a key did, in the order in which they came.
CREATE TABLE receipt (
    seq  INTEGER PRIMARY KEY,
    id   TEXT NOT NULL UNIQUE,
    time REAL NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX receipt_by_time ON receipt (time);
"""

MIGRATIONS = (_FIRST, _LONG_CURVES, _RETENTION, _QUEUES, _SERVICES, _TRACKING, _JOURNAL, _RECEIPTS)
"""Each migrates the file from one version to the next; never changed once released, only added to."""
VERSION = len(MIGRATIONS)


def version_of(connection: sqlite3.Connection) -> int:
    """Return the number of migrations applied to the file."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def migrate(connection: sqlite3.Connection) -> None:
    """Apply all pending migrations. Each step is one transaction, so a crash in between loses nothing."""
    for number in range(version_of(connection), VERSION):
        connection.executescript(f"BEGIN IMMEDIATE; {MIGRATIONS[number]}; PRAGMA user_version = {number + 1}; COMMIT;")
