"""Metric points: one row per point, eight bytes per number; names are stored once per curve.

A curve that grows past `MOST` points is halved, and from then on every second point is kept, then every fourth: a program that
reports a thousand times a second does not fill the disk, and its curve stays evenly spaced. The newest point is always kept.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from fairway.app.port.port import MetricPoint
from fairway.state.job import JobKey
from fairway.stores.sqlite import codec

MOST = 20_000
"""Maximum number of points kept of one curve."""

_Row = tuple[float, int | None, bytes]
"""Time, step, and the encoded numbers."""


@dataclass(slots=True)
class _Curve:
    """The points of one task with one set of names; the stored points are numbered from 0."""

    id: int
    job: int
    count: int
    stride: int
    seen: int
    last: _Row | None

    def take(self, row: _Row) -> int | None:
        """Count one more point; return its number if it is to be stored."""
        keep = self.seen % self.stride == 0
        self.seen += 1
        self.last = None if keep else row
        if not keep:
            return None
        self.count += 1
        return self.count - 1


class MetricCurves:
    """The points of all runs."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, points: Iterable[tuple[JobKey, MetricPoint]]) -> None:
        """Append points within the caller's transaction. Points of unknown runs are dropped."""
        jobs: dict[JobKey, int | None] = {}
        curves: dict[tuple[int, str, str, str], _Curve] = {}
        rows: list[tuple[object, ...]] = []
        for key, point in points:
            if key not in jobs:
                jobs[key] = self._job(key)
            job = jobs[key]
            if job is None:
                continue
            names = sorted(point.metrics)
            curve_key = (job, point.task, point.source, json.dumps(names))
            curve = curves.get(curve_key)
            if curve is None:
                curve = curves[curve_key] = self._curve(*curve_key)
            row = (point.time, point.step, codec.pack_floats([point.metrics[name] for name in names]))
            number = curve.take(row)
            if number is not None:
                rows.append((job, curve.id, number, *row))
        self._connection.executemany("INSERT INTO point VALUES (?, ?, ?, ?, ?, ?)", rows)
        for curve in curves.values():
            self._put_curve(curve)

    def read(self, key: JobKey, metric: str, limit: int) -> list[MetricPoint]:
        """Return points in order of time, at most `limit`, of the curves that contain the metric."""
        job = self._job(key)
        if job is None:
            return []
        curves = []
        for curve, task, source, names, count, *last in self._connection.execute(
            "SELECT id, task, source, names, n, last_time, last_step, last_data FROM curve WHERE job = ? ORDER BY id", (job,)
        ).fetchall():
            metric_names = json.loads(names)
            if not metric or metric in metric_names:
                curves.append((curve, task, source, metric_names, count, [] if last[0] is None else [tuple(last)]))
        shares = share_out([count + len(last) for *_, count, last in curves], limit)
        points = []
        for (curve, task, source, metric_names, count, last), share in zip(curves, shares, strict=True):
            for time, step, data in self._thinned(job, curve, count, last, share):
                points.append(
                    MetricPoint(time, step, dict(zip(metric_names, codec.unpack_floats(data), strict=True)), task, source)
                )
        points.sort(key=lambda point: point.time)
        return points

    def _thinned(self, job: int, curve: int, count: int, last: list[_Row], share: int) -> list[_Row]:
        """Return at most `share` of the stored points and the last one."""
        if share <= 0:
            return []
        sql = "SELECT time, step, data FROM point WHERE job = ? AND curve = ?"
        if share >= count + len(last):
            return [*self._connection.execute(f"{sql} ORDER BY seq", (job, curve)), *last]
        chosen = json.dumps([number for number in picks(count + len(last), share) if number < count])
        sql += " AND seq IN (SELECT value FROM json_each(?)) ORDER BY seq"
        return [*self._connection.execute(sql, (job, curve, chosen)), *last]

    def _job(self, key: JobKey) -> int | None:
        sql = "SELECT id FROM job WHERE namespace = ? AND name = ?"
        row = self._connection.execute(sql, (key.namespace, key.name)).fetchone()
        return row[0] if row else self._tracked(key)

    def _tracked(self, key: JobKey) -> int | None:
        """Return the owner id of the curves of a tracked run that is not a job."""
        sql = "SELECT -id FROM tracked WHERE kind = 'run' AND namespace = ? AND name = ?"
        row = self._connection.execute(sql, (key.namespace, key.name)).fetchone()
        return row[0] if row else None

    def _curve(self, job: int, task: str, source: str, names: str) -> _Curve:
        row = self._connection.execute(
            "INSERT INTO curve (job, task, source, names, n) VALUES (?, ?, ?, ?, 0)"
            " ON CONFLICT DO UPDATE SET n = n RETURNING id, n, stride, seen",
            (job, task, source, names),
        ).fetchone()
        return _Curve(row[0], job, row[1], row[2], row[3], None)

    def _put_curve(self, curve: _Curve) -> None:
        while curve.count > MOST:
            self._halve(curve)
        self._connection.execute(
            "UPDATE curve SET n = ?, stride = ?, seen = ?, last_time = ?, last_step = ?, last_data = ? WHERE id = ?",
            (curve.count, curve.stride, curve.seen, *(curve.last or (None, None, None)), curve.id),
        )

    def _halve(self, curve: _Curve) -> None:
        curve_key = (curve.job, curve.id)
        if curve.last is None and curve.count % 2 == 0:
            sql = "SELECT time, step, data FROM point WHERE job = ? AND curve = ? AND seq = ?"
            curve.last = self._connection.execute(sql, (*curve_key, curve.count - 1)).fetchone()
        self._connection.execute("DELETE FROM point WHERE job = ? AND curve = ? AND seq % 2 = 1", curve_key)
        self._connection.execute("UPDATE point SET seq = seq / 2 WHERE job = ? AND curve = ?", curve_key)
        curve.count = (curve.count + 1) // 2
        curve.stride *= 2


def share_out(counts: list[int], limit: int) -> list[int]:
    """Return how many points of each curve to show: all of short curves, an equal share of the remainder of long ones."""
    shares = [0] * len(counts)
    remaining = max(0, limit)
    order = sorted(range(len(counts)), key=counts.__getitem__)
    for position, which in enumerate(order):
        shares[which] = min(counts[which], remaining // (len(order) - position))
        remaining -= shares[which]
    return shares


def picks(count: int, share: int) -> list[int]:
    """Return which `share` of `count` points to show: evenly spread, always the last, and the first unless only one fits."""
    if share == 1:
        return [count - 1]
    return [step * (count - 1) // (share - 1) for step in range(share)]
