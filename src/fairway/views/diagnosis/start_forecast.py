"""The scheduler's forecast for a waiting run, converted to sentences and commands to paste."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.plan.scheduling.explanation.start_hint import StartHint, StartHintKind
from fairway.plan.scheduling.forecast.duration_estimate import DurationEstimate
from fairway.plan.scheduling.start_simulation import StartProspect
from fairway.plan.task_expansion import folds_into_one
from fairway.spec.resource import ResourceAmounts
from fairway.state.job import JobKey, JobState
from fairway.units import quantity
from fairway.views.diagnosis.waiting_run import HelpfulChangeView, StartForecastView, WaitingRunView
from fairway.views.text import phrase

_CALLED = ("-m", "fairway.runtime.call")
"""Start of the command of a Python function, after the interpreter."""
_FOLDED = (StartHintKind.GPUS, StartHintKind.CPU, StartHintKind.MEMORY, StartHintKind.REPLICAS)
"""Changes that do not apply to a gang that is started by a single launcher."""
_NAMED = 4
"""Number of runs above which not all are listed by name."""
_LIKELY = 1.5
"""Factor by which the median must differ from both ends of the range to be shown."""


def waiting_view(
    job: JobState, position: int, of: int, start: StartProspect, changes: Sequence[HelpfulChangeView]
) -> WaitingRunView:
    """Return the complete view of a waiting run."""
    return WaitingRunView(job.spec.queue, position, of, start_view(start), tuple(changes))


def start_view(found: StartProspect) -> StartForecastView:
    """Return the earliest start as a range."""
    if found.forecast is not None:
        forecast = found.forecast
        certainty = (
            "a guess: the run times of the runs before it are unknown" if found.guess else f"confidence {forecast.confidence:.0%}"
        )
        words = f"{_between(forecast.low, forecast.median, forecast.high)} ({certainty}){_more(found)}"
        return StartForecastView(
            words, forecast.low, forecast.median, forecast.high, forecast.confidence, plays=found.plays, guess=found.guess
        )
    if found.beyond:
        words = f"not within the next {_about(found.horizon)}, as things stand"
        if found.endless:
            words = f"no estimate: {_held_by(found.endless)}"
        return StartForecastView(words, not_before=found.horizon, plays=found.plays, guess=found.guess)
    words = "no estimate: the forecast took too much time"
    if found.at_least >= 60:
        words = f"not within the next {_about(found.at_least)}; a longer forecast took too much time"
    return StartForecastView(words, not_before=found.at_least, plays=found.plays)


def change_view(job: JobState, change: StartHint) -> HelpfulChangeView | None:
    """Return a change in words, with the command that makes it; None if it does not apply to this run's document."""
    if change.kind in _FOLDED and folds_into_one(job):
        return None
    value = _value(change)
    wait = change.wait
    is_known = wait is not None and wait.basis not in ("none", "service")
    return HelpfulChangeView(
        change.kind.value,
        f"{_what(job, change, value)}: {_when(change)}",
        _command(job, change, value),
        change.role,
        value,
        tuple(key.name for key in change.after),
        *((wait.low, wait.median, wait.high, wait.confidence) if wait is not None and is_known else ()),
    )


def moves_view(movers: Sequence[JobKey]) -> HelpfulChangeView:
    """Return the change that other runs move, so that free GPUs lie together."""
    names = [key.name for key in movers]
    has = "it has" if len(names) == 1 else "they have"
    words = f"if {phrase.listing(names)} {'moves' if len(names) == 1 else 'move'} elsewhere: after {has} saved and moved"
    return HelpfulChangeView("moves", words, "fairway defragment", after=tuple(names))


def _value(change: StartHint) -> str:
    """Return the value as written in a document or a flag."""
    match change.kind:
        case StartHintKind.TIMEOUT:
            return quantity.show_seconds(float(change.value))
        case StartHintKind.CPU:
            return quantity.show_number(int(change.value) / 1000)
        case StartHintKind.MEMORY:
            mebibytes = int(change.value)
            return f"{mebibytes // 1024}Gi" if mebibytes % 1024 == 0 else f"{mebibytes}Mi"
        case _:
            return change.value


def _what(job: JobState, change: StartHint, value: str) -> str:
    """Return the condition in words: `with 3 GPUs for each worker`."""
    several = len(job.spec.roles) > 1
    match change.kind:
        case StartHintKind.TIMEOUT:
            return f"with a timeout of {value}"
        case StartHintKind.TYPE:
            return f"on GPUs of type {value}" + (f" for {change.role}" if several else "")
        case StartHintKind.PLACEMENT:
            return f"without `{value}` in the placement" + (f" of {change.role}" if change.role and several else "")
        case StartHintKind.QUEUE:
            return f"in queue {value}"
        case StartHintKind.PRIORITY:
            return f"with priority {value}"
        case StartHintKind.REPLICAS:
            return f"with {phrase.count(int(value), change.role)}"
        case StartHintKind.ENDS:
            return f"when {_runs(change.after)} ended"
        case _:
            return f"with {_amount(change.kind, value)}" + (f" for each {change.role}" if _many(job) else "")


def _amount(kind: StartHintKind, value: str) -> str:
    if kind is StartHintKind.GPUS:
        return phrase.count(int(value), "GPU")
    return f"{value} of memory" if kind is StartHintKind.MEMORY else f"{value} CPU{'' if value == '1' else 's'}"


def _runs(keys: Sequence[JobKey]) -> str:
    """Return `a-1 has` or `a-1 and b-2 have`; of many runs only the first three are named."""
    names = [key.name for key in keys]
    shown = names if len(names) <= _NAMED else [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} more"]
    return f"{phrase.listing(shown)} {'has' if len(names) == 1 else 'have'}"


def _held_by(services: Sequence[str]) -> str:
    if len(services) == 1:
        return f"service {services[0]} holds the resources, and a service does not end by itself"
    return f"services {phrase.listing(list(services))} hold the resources, and services do not end by themselves"


def _many(job: JobState) -> bool:
    return len(job.spec.roles) > 1 or any(role.replicas.max > 1 for role in job.spec.roles.values())


def _when(change: StartHint) -> str:
    if change.wait is not None:
        return _expected(change.wait, len(change.after) > 1)
    return f"after {_runs(change.after)} made room" if change.after else "now"


def _expected(wait: DurationEstimate, several: bool) -> str:
    if wait.basis == "none":
        return "time unknown"
    if wait.basis == "service":
        return "a service does not end by itself; `fairway scale` or `fairway delete` makes room"
    if wait.basis == "limit":
        return f"within {_about(wait.high)}, when {'the last' if several else 'its'} timeout expires at the latest"
    return f"{_between(wait.low, wait.median, wait.high)} (confidence {wait.confidence:.0%})"


def _command(job: JobState, change: StartHint, value: str) -> str:
    """Return the command that submits a changed copy of this run, and stops this run once the copy is queued."""
    if any(role.command[1:3] == _CALLED for role in job.spec.roles.values()):
        return ""
    flag = _flag(job, change, value)
    if not flag:
        return ""
    namespace_flag = f" -n {job.key.namespace}" if job.key.namespace != "default" else ""
    role = f" --role {change.role}" if change.role and len(job.spec.roles) > 1 else ""
    name = job.key.name
    return f"fairway submit{namespace_flag} --like {name}{role} {flag} && fairway stop{namespace_flag} {name}"


def _flag(job: JobState, change: StartHint, value: str) -> str:
    match change.kind:
        case StartHintKind.TYPE:
            count = _gpu_count(job.spec.roles[change.role].resources)
            return f"--gpus {value}:{count}" if count else ""
        case StartHintKind.PLACEMENT | StartHintKind.ENDS:
            return ""
        case StartHintKind.REPLICAS:
            return f"--workers {value}"
        case StartHintKind.CPU:
            return f"--cpus {value}"
        case _:
            return f"--{change.kind.value} {value}"


def _gpu_count(asked: ResourceAmounts) -> str:
    """Return the number of GPUs to write with a type: as in the document; empty if GPUs are shared only by memory."""
    if asked.gpu is not None:
        return asked.gpu
    return "1" if asked.gpu_share is not None else ""


def _more(found: StartProspect) -> str:
    return f"; not counting {phrase.count(found.left_out, 'run')} before it, so probably later" if found.left_out else ""


def _between(low: float, median: float, high: float) -> str:
    """Return a range in words: `in 4m to 2h, most likely in about 40m`."""
    if high < 60:
        return "within a minute"
    is_informative = median >= max(60.0, low * _LIKELY) and high >= median * _LIKELY
    likely = f", most likely in about {_about(median)}" if is_informative else ""
    if low < 60 or _about(low) == _about(high):
        return f"within {_about(high)}{likely}"
    return f"in {_about(low)} to {_about(high)}{likely}"


def _about(seconds: float) -> str:
    """Return a duration without false precision: `50s`, `40m`, `2h15m`, `3d`."""
    for below, step in ((60.0, 10.0), (3600.0, 60.0), (86400.0, 900.0), (float("inf"), 3600.0)):
        if seconds < below:
            return phrase.span(max(step, round(seconds / step) * step))
    return ""
