"""Every label and annotation that we write or read on objects: the contract between operator, scheduler and agent.

Pure. Other modules use these constants and never spell a name out. A pod that names our scheduler and has none of these marks
is a gang of one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from fairway.state.job import RunEviction
from fairway.units.number import finite, int64

DOMAIN = "fairway.dev"
SCHEDULER = "fairway"
"""Our name in a pod's `schedulerName`."""

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "fairway"
RUN = f"{DOMAIN}/run"
ROLE = f"{DOMAIN}/role"
INDEX = f"{DOMAIN}/index"
ATTEMPT = f"{DOMAIN}/attempt"

GANG = f"{DOMAIN}/gang"
"""The gang's name, unique within its namespace and different for each attempt."""
PARTS = f"{DOMAIN}/gang-parts"
SAME_RACK = f"{DOMAIN}/same-rack"
QUEUE = f"{DOMAIN}/queue"
PRIORITY = f"{DOMAIN}/priority"
"""Priority among runs of the same kind; where it is missing, the pod's own priority counts."""
USER = f"{DOMAIN}/user"
GROUPS = f"{DOMAIN}/groups"
"""The user's groups that are members of queues, as a JSON list."""
SERIES = f"{DOMAIN}/series"
TIME_LIMIT = f"{DOMAIN}/time-limit"
SUBMITTED = f"{DOMAIN}/submitted"
SAVED = f"{DOMAIN}/saved"
"""When the run last saved a checkpoint; a run that has saved one can resume."""
GPUS = f"{DOMAIN}/gpus"
GPU_MILLI = f"{DOMAIN}/gpu-milli"
GPU_MEMORY = f"{DOMAIN}/gpu-memory"
GPU_TYPES = f"{DOMAIN}/gpu-types"
NODES = f"{DOMAIN}/nodes"
DEVICES = f"{DOMAIN}/devices"

GPU_IDS = f"{DOMAIN}/gpu-ids"
"""Written in the Binding: the devices allocated to the pod, by UUID."""
GPU_SHARE = f"{DOMAIN}/gpu-share"
"""Written in the Binding of a pod that shares its devices: thousandths of each."""
GPU_PART = f"{DOMAIN}/gpu-part"
"""Written with `GPU_SHARE`: the fraction of their memory, `0.250`."""
LEAVE = f"{DOMAIN}/leave"
"""Written by the scheduler: the run must make room."""
DELETED_FOR = f"{DOMAIN}/deleted-for"
"""Written before we delete a pod: the reason."""
RACK_LABELS = (f"{DOMAIN}/rack", "topology.kubernetes.io/rack", "topology.kubernetes.io/zone")
"""Labels of nodes; the first of these that a node has names its rack."""
SERVICE = f"{DOMAIN}/service"
"""On everything that a ModelService consists of: its name."""
REVISION = f"{DOMAIN}/revision"
"""On a revision's Deployment and pods: its number."""
REPLICA = f"{DOMAIN}/replica"
"""The replica's run. On a pod of a revision's Deployment, once it is known which replica the pod is."""
PART = f"{DOMAIN}/part"
"""The part that a pod of a service plays: `replica` or `router`."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""On a pod that has drained: the Deployment deletes it before the others."""
CODE = f"{DOMAIN}/code"
"""On a TrainingJob: the ConfigMap that holds its code, or `blob:DIGEST`, a manifest in the operator's blob store."""
BLOB = "blob:"
REQUEST = f"{DOMAIN}/request"
"""On a TrainingJob: the idempotency key of the request that created it; a repeated request finds the job by it."""

TRUSTED = (QUEUE, USER, PRIORITY, SUBMITTED, TIME_LIMIT)
"""Annotations of pods that decide their turn.

They are trusted on pods that Fairway created; admission refuses them on others (`install/pod_annotation_policy.py`).
"""
MOST_PODS = 1_000_000
"""Maximum number of pods of a role."""
SHOWN = 80
"""Maximum number of characters of a bad value that a message quotes."""
COUNTS = {GPUS: (0, 10_000), GPU_MILLI: (1, 1000), GPU_MEMORY: (0, 2**60), PRIORITY: (-(2**31), 2**31 - 1)}
"""Annotations that are whole numbers, and their bounds."""
LONGEST_NUMBER = 20
"""Characters of a 64-bit number and its sign."""


@dataclass(frozen=True, slots=True)
class RoleAnnotation:
    """One role of a gang."""

    size: int
    """Pods that were created: all of them start together."""
    least: int
    most: int
    """How far the scheduler may shrink and grow the run later."""
    together: bool = False
    apart: bool = False


@dataclass(frozen=True, slots=True)
class GangAnnotation:
    """What the scheduler must know of the run that a pod belongs to."""

    name: str
    parts: dict[str, RoleAnnotation] = field(default_factory=dict)
    same_rack: bool = False
    queue: str = "default"
    user: str = ""
    series: str = ""
    time_limit: float | None = None
    submitted: float | None = None
    saved: float | None = None

    @property
    def size(self) -> int:
        """Number of pods of the whole gang."""
        return sum(part.size for part in self.parts.values())


def made_by_us(labels: Mapping[str, str]) -> bool:
    """Whether the labels are those of a pod of a run or of a service."""
    return labels.get(MANAGED_BY) == MANAGER and (RUN in labels or SERVICE in labels)


def write_gang(gang: GangAnnotation) -> dict[str, str]:
    """Return the annotations that describe a gang."""
    parts = {name: asdict(part) for name, part in gang.parts.items()}
    annotations = {GANG: gang.name, PARTS: json.dumps(parts, separators=(",", ":")), QUEUE: gang.queue}
    annotations |= {SAME_RACK: "true"} if gang.same_rack else {}
    annotations |= {name: text for name, text in ((USER, gang.user), (SERIES, gang.series)) if text}
    times = ((TIME_LIMIT, gang.time_limit), (SUBMITTED, gang.submitted), (SAVED, gang.saved))
    return annotations | {name: repr(number) for name, number in times if number is not None}


def read_gang(annotations: Mapping[str, str]) -> GangAnnotation | None:
    """Parse the gang from annotations. Returns None when there is none; raises `ValueError` for an invalid description."""
    name = annotations.get(GANG)
    if name is None:
        return None
    try:
        plain = json.loads(annotations.get(PARTS, "{}"))
        parts = {role: _part(part) for role, part in plain.items()}
    except (TypeError, AttributeError, ValueError, RecursionError) as error:
        message = f"annotation {PARTS} = {annotations.get(PARTS, '')[:SHOWN]!r} does not describe a gang: {error}"
        raise ValueError(message) from error
    return GangAnnotation(
        name=name,
        parts=parts,
        same_rack=annotations.get(SAME_RACK) == "true",
        queue=annotations.get(QUEUE, "default"),
        user=annotations.get(USER, ""),
        series=annotations.get(SERIES, ""),
        time_limit=_number(annotations, TIME_LIMIT),
        submitted=_number(annotations, SUBMITTED),
        saved=_number(annotations, SAVED),
    )


def _part(plain: dict[str, object]) -> RoleAnnotation:
    """Parse one role. Raises `TypeError` or `ValueError` where a value has another type, or is out of bounds."""
    for name in ("size", "least", "most"):
        number = plain.get(name)
        if type(number) is not int or not 0 <= number <= MOST_PODS:
            message = f"{name} is not a number from 0 to {MOST_PODS}"
            raise ValueError(message)
    if any(type(plain.get(name, False)) is not bool for name in ("together", "apart")):
        message = "together and apart must be true or false"
        raise TypeError(message)
    return RoleAnnotation(**plain)  # type: ignore[arg-type]


def _number(annotations: Mapping[str, str], name: str) -> float | None:
    text = annotations.get(name)
    if text is None:
        return None
    try:
        number = finite(float(text))
    except ValueError:
        number = None
    if number is None:
        message = f"annotation {name} = {text[:SHOWN]!r} is not a finite number"
        raise ValueError(message)
    return number


def read_count(text: str | None, fallback: int, least: int = 0, most: int = 2**63 - 1) -> int:
    """Parse a whole number from an annotation or a label; return `fallback` when it is missing, invalid or out of bounds."""
    # Longer texts are no 64-bit number, and the conversion of very long ones raises.
    if text is None or len(text) > LONGEST_NUMBER:
        return fallback
    try:
        number = int64(int(text))
    except ValueError:
        return fallback
    return number if number is not None and least <= number <= most else fallback


def miscounted(annotations: Mapping[str, str]) -> str:
    """Return a message about the first annotation that is no number within its bounds; empty when all are."""
    for name, (least, most) in COUNTS.items():
        if name in annotations and read_count(annotations[name], least - 1, least, most) < least:
            return f"annotation {name} = {annotations[name][:SHOWN]!r} is not a number from {least} to {most}"
    return ""


def write_leave(leaving: RunEviction) -> str:
    """Return the value of the `LEAVE` annotation, which requests a run to make room."""
    return json.dumps(asdict(leaving), separators=(",", ":"))


def read_leave(annotations: Mapping[str, str]) -> RunEviction | None:
    """Parse what the scheduler requests of the run; None when there is no request, or none with the right types."""
    text = annotations.get(LEAVE)
    if text is None:
        return None
    try:
        leaving = RunEviction(**json.loads(text))
    except (TypeError, ValueError, RecursionError):
        return None
    since = finite(leaving.since)
    if type(leaving.cause) is not str or type(leaving.message) is not str or since is None or type(leaving.sizes) is not dict:
        return None
    sizes = {name: size for name, size in leaving.sizes.items() if type(size) is int and 0 <= size <= MOST_PODS}
    # JSON can spell a lone surrogate, which cannot be stored.
    return RunEviction(storable(leaving.cause), storable(leaving.message), since, sizes) if sizes == leaving.sizes else None


def storable(text: str) -> str:
    """Return the text with everything replaced that UTF-8 cannot encode."""
    return text.encode(errors="replace").decode()
