"""The SQL statements of `list_jobs`. Each scans an index in the order of the result and stops at the limit."""

from __future__ import annotations

from fairway.app.port.port import JobFilter
from fairway.errors import UsageError
from fairway.state.phase import JobPhase

Statement = tuple[str, tuple[object, ...]]


def page(filter: JobFilter) -> Statement:
    """Select rows (id, namespace, name, body), newest first, one more than the limit to detect whether there are others."""
    ids, values = _ids(filter, _cursor(filter.before))
    chosen = f"SELECT id FROM ({ids} ORDER BY id DESC LIMIT ?)"
    return f"SELECT id, namespace, name, body FROM job WHERE id IN ({chosen}) ORDER BY id DESC", (
        *values,
        max(0, filter.limit) + 1,
    )


def total(filter: JobFilter) -> Statement:
    """Select the number of matching runs, on all pages."""
    if filter.labels:
        ids, values = _ids(filter, None)
        return f"SELECT COUNT(*) FROM ({ids})", values
    sql = "SELECT COALESCE(SUM(n), 0) FROM job_count WHERE namespace = ? AND series = ?"
    values = (filter.namespace, filter.series)
    if filter.phases:
        return f"{sql} AND phase IN ({_marks(filter.phases)})", (*values, *filter.phases)
    return sql, values


def _cursor(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        message = f"before={text!r} is not a cursor"
        raise UsageError(message, fix="take it from `next` of the page before, or leave it out to begin at the newest")
    return int(text)


def _ids(filter: JobFilter, before: int | None) -> Statement:
    """Select the ids that match and come after the cursor, ready for ORDER BY id DESC."""
    if filter.labels:
        return _labelled(filter, before)
    conditions: list[str] = []
    values: list[object] = []
    for column, value in (("namespace", filter.namespace), ("series", filter.series)):
        if value:
            conditions.append(f"{column} = ?")
            values.append(value)
    older = ["id < ?"] if before is not None else []
    limit = [before] if before is not None else []
    if not filter.phases and not (filter.namespace or filter.series):
        return f"SELECT id FROM job {_where(older)}", tuple(limit)
    # One index scan per phase, merged by SQLite: every index that serves a list has the phase before the id.
    phases = filter.phases or tuple(phase.value for phase in JobPhase)
    arm = f"SELECT id FROM job {_where([*conditions, 'phase = ?', *older])}"
    return " UNION ALL ".join([arm] * len(phases)), tuple(value for phase in phases for value in (*values, phase, *limit))


def _labelled(filter: JobFilter, before: int | None) -> Statement:
    """Select runs with all of the labels, driven by the first one."""
    (key, value), *others = filter.labels.items()
    conditions = ["job_label.key = ?", "job_label.value = ?"]
    values: list[object] = [key, value]
    if before is not None:
        conditions.append("job_label.job < ?")
        values.append(before)
    for column, required in (("namespace", filter.namespace), ("series", filter.series)):
        if required:
            conditions.append(f"job.{column} = ?")
            values.append(required)
    if filter.phases:
        conditions.append(f"job.phase IN ({_marks(filter.phases)})")
        values.extend(filter.phases)
    for other in others:
        conditions.append("EXISTS (SELECT 1 FROM job_label other WHERE other.key = ? AND other.value = ? AND other.job = job.id)")
        values.extend(other)
    return f"SELECT job.id AS id FROM job_label CROSS JOIN job ON job.id = job_label.job {_where(conditions)}", tuple(values)


def _where(conditions: list[str]) -> str:
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""


def _marks(values: tuple[str, ...]) -> str:
    return ", ".join("?" * len(values))
