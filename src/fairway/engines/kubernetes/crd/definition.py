"""The CustomResourceDefinitions of our kinds. Pure.

The schemas are generated from the models of `fairway.spec`. Checks that span several fields are written in CEL, with the messages
of the models. The API server estimates what a rule may cost, so every field that a rule reads has a bound. Fields that exist on a
cluster only (`CLUSTER_FIELDS`) are no part of the document; code that reads the spec must remove them first.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairway.engines.kubernetes.crd import gpu_node_schema, validation_rule
from fairway.engines.kubernetes.crd import schema as crd_schema
from fairway.engines.kubernetes.crd.schema import Schema, rule
from fairway.engines.kubernetes.objects import Manifest
from fairway.spec.custom_resource import GROUP, VERSION, structural
from fairway.spec.job import JobSpec, TrainingJob
from fairway.spec.queue import JobQueue, QueueSpec
from fairway.spec.service import ModelService, ServiceSpec
from fairway.units import names

CLUSTER_FIELDS = {"TrainingJob": ("suspend", "size"), "ModelService": ("floor",)}
"""Fields of `spec` that exist on a cluster only: verbs write them (`stop`, `resume`, `scale`)."""

ROLES, ARGUMENTS, LONG = 16, 256, 8192
"""Bounds: roles of a job, arguments of a command, characters of an argument or a path."""
SCRIPT = 65_536
_HOST_NAME = 63 - len("--0000")
"""Characters of a host name that job and role may use together: the index is appended to them."""

Column = tuple[str, str] | tuple[str, str, str]
"""A column's name and path, and its type unless that is string."""


@dataclass(frozen=True, slots=True)
class _KindPresentation:
    """How one kind is presented by the cluster."""

    plural: str
    short: tuple[str, ...]
    namespaced: bool
    schema: Schema
    columns: tuple[Column, ...]
    wide: tuple[Column, ...] = ()
    selectable: tuple[str, ...] = ()
    scale: str = ""
    """The field of `spec` that `/scale` writes."""


def definitions() -> list[Manifest]:
    """Return the definitions of all kinds, ready to be applied."""
    return [definition(kind) for kind in _LOOKS]


def definition(kind: str) -> Manifest:
    """Return the definition of one kind."""
    looks = _LOOKS[kind]()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{looks.plural}.{GROUP}", "labels": {"app.kubernetes.io/part-of": "fairway"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if looks.namespaced else "Cluster",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": looks.plural,
                "singular": kind.lower(),
                "shortNames": list(looks.short),
                "categories": ["fairway"],
            },
            "versions": [_version(looks)],
        },
    }


def _version(looks: _KindPresentation) -> Schema:
    columns = [*(_column(column, 0) for column in looks.columns), *(_column(column, 1) for column in looks.wide)]
    version: Schema = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [*columns, _column(("Age", ".metadata.creationTimestamp", "date"), 0)],
        "schema": {"openAPIV3Schema": looks.schema},
    }
    if looks.scale:
        version["subresources"]["scale"] = {
            "specReplicasPath": f".spec.{looks.scale}",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    if looks.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in looks.selectable]
    return version


def _column(column: Column, priority: int) -> Schema:
    name, path, *kind = column
    printer_column = {"name": name, "type": kind[0] if kind else "string", "jsonPath": path}
    return {**printer_column, "priority": priority} if priority else printer_column


def _training_job() -> _KindPresentation:
    spec = structural(JobSpec)
    fields = spec["properties"]
    fields["roles"]["maxProperties"] = ROLES
    _bound_role(crd_schema.inside(fields, "roles.*"))
    _bound_code(fields)
    fields["suspend"] = {
        "type": "boolean",
        "description": "True: the run saves and stops, and stays stopped. False: it resumes from its last checkpoint.",
    }
    fields["size"] = {
        "type": "integer",
        "minimum": 0,
        "maximum": 10_000,
        "default": 0,
        "description": "Requested replicas of elastic roles, within min and max; 0: as the roles specify. Written by `/scale`.",
    }
    spec["x-kubernetes-validations"] = [
        rule("self.framework == oldSelf.framework", "framework cannot be changed: a job is one run; create another"),
        rule(
            "self.roles.all(name, name in oldSelf.roles) && size(self.roles) == size(oldSelf.roles)",
            "roles cannot be added or removed: a job is one run; create another",
        ),
    ]
    validation_rule.add_to_job(spec)
    schema = crd_schema.whole(TrainingJob.__doc__ or "", spec, _job_status())
    schema["x-kubernetes-validations"] = [
        _name_rule(),
        rule(
            f"self.spec.roles.all(role, size(self.metadata.name) + size(role) <= {_HOST_NAME})",
            f"the names of the job and of each role together must have at most {_HOST_NAME} characters: they form host names",
        ),
    ]
    return _KindPresentation(
        "trainingjobs",
        ("tj",),
        True,
        schema,
        (("Phase", ".status.phase"), ("Ready", ".status.ready"), ("Queue", ".spec.queue"), ("Reason", ".status.reason")),
        (
            ("Framework", ".spec.framework"),
            ("Priority", ".spec.priority", "integer"),
            ("Restarts", ".status.restarts", "integer"),
            ("GPUs", ".status.gpus"),
            ("Progress", ".status.progress"),
            ("Message", ".status.message"),
        ),
        (".spec.queue", ".spec.framework", ".status.phase"),
        "size",
    )


def _bound_role(role: Schema) -> None:
    crd_schema.bound_list(role, "command", ARGUMENTS, LONG)
    role["properties"]["script"]["maxLength"] = SCRIPT
    role["x-kubernetes-validations"] = [
        rule(
            "(has(self.command) && size(self.command) > 0) != (has(self.script) && size(self.script) > 0)",
            "needs a command or a script, and not both",
        ),
        *(
            rule(
                f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})",
                f"{field} cannot be changed: a job is one run; create another",
            )
            for field in ("command", "script")
        ),
    ]
    _order_replicas(role["properties"]["replicas"])


def _order_replicas(replicas: Schema) -> None:
    # The server validates the default itself before it fills in nested defaults, so the default is written out.
    replicas["default"] = {field: part["default"] for field, part in replicas["properties"].items()}
    replicas["x-kubernetes-validations"] = [rule("self.min <= self.max", "min is more than max; swap them")]


def _bound_code(own: Schema) -> None:
    code = own["code"]
    code["properties"]["path"]["maxLength"] = LONG
    code["x-kubernetes-validations"] = [
        rule(
            "!(has(self.path) && size(self.path) > 0 && has(self.git))",
            "has a path and a git source; keep one of them",
        )
    ]


def _job_status() -> Schema:
    return crd_schema.status(
        {
            "phase": crd_schema.text("Pending, Starting, Running, Restarting, Stopping, Succeeded, Failed or Stopped."),
            "reason": crd_schema.text("Reason for the phase, in one word."),
            "message": crd_schema.text("Reason for the phase, in a sentence."),
            "ready": crd_schema.text("Running tasks of all tasks: 2/4."),
            "replicas": crd_schema.integer("Number of tasks."),
            "readyReplicas": crd_schema.integer("Number of running tasks."),
            "selector": crd_schema.text("Labels of its pods, for `/scale`."),
            "attempt": crd_schema.integer("How often the gang was started."),
            "restarts": crd_schema.integer("Failures counted against `restart.max`."),
            "gpus": crd_schema.text("Number of GPUs that it holds."),
            "progress": crd_schema.text("The last reported step and metrics."),
            "tensorboard": crd_schema.text("Address of its TensorBoard inside the cluster, or why there is none."),
            "startTime": crd_schema.text("When it first started."),
            "finishTime": crd_schema.text("When it ended."),
        }
    )


def _model_service() -> _KindPresentation:
    spec = structural(ServiceSpec)
    fields = spec["properties"]
    _bound_code(fields)
    crd_schema.bound_list(spec, "command", ARGUMENTS, LONG)
    _order_replicas(fields["replicas"])
    fields["rollout"]["properties"]["steps"]["maxItems"] = 100
    fields["rollout"]["x-kubernetes-validations"] = [
        rule(
            "!has(self.steps) || size(self.steps) == 0 || !(self.strategy in ['rolling', 'blue-green'])",
            "has steps, and rolling and blue-green know none; use strategy: canary, or leave the steps out",
        )
    ]
    fields["floor"] = {
        "type": "integer",
        "minimum": 0,
        "maximum": 1000,
        "default": 0,
        "description": "Minimum number of replicas; the autoscaler may add more. 0: no floor. Written by `/scale`.",
    }
    spec["x-kubernetes-validations"] = [
        rule(
            "(has(self.model) && size(self.model) > 0) != (has(self.command) && size(self.command) > 0)",
            "needs a model or a command, and not both",
        ),
        rule("self.floor <= self.replicas.max", "the floor (`/scale`) is more than replicas.max; raise replicas.max first"),
    ]
    validation_rule.add_to_service(spec)
    schema = crd_schema.whole(ModelService.__doc__ or "", spec, _service_status())
    schema["x-kubernetes-validations"] = [_name_rule()]
    return _KindPresentation(
        "modelservices",
        ("ms",),
        True,
        schema,
        (("Phase", ".status.phase"), ("Serves", ".status.serves"), ("Ready", ".status.ready"), ("Rollout", ".status.rollout")),
        (
            ("Min", ".spec.replicas.min", "integer"),
            ("Max", ".spec.replicas.max", "integer"),
            ("Floor", ".spec.floor", "integer"),
            ("Rule", ".status.rule"),
            ("URL", ".status.url"),
            ("Message", ".status.message"),
        ),
        (".spec.queue", ".status.phase"),
        "floor",
    )


def _service_status() -> Schema:
    return crd_schema.status(
        {
            "phase": crd_schema.text("Ready, Starting, Releasing, Idle, Failing or Deleting."),
            "message": crd_schema.text("What is wrong, in a sentence."),
            "serves": crd_schema.text("The model version that serves now, or the command."),
            "revision": crd_schema.integer("Number of the revision that serves now."),
            "ready": crd_schema.text("Ready replicas of those requested: 2/4."),
            "replicas": crd_schema.integer("Number of replicas."),
            "readyReplicas": crd_schema.integer("Number of ready replicas."),
            "selector": crd_schema.text("Labels of its pods, for `/scale`."),
            "rollout": crd_schema.text("State of the rollout."),
            "rule": crd_schema.text("The rule that set the number of replicas."),
            "url": crd_schema.text("URL of the service."),
        }
    )


def _job_queue() -> _KindPresentation:
    spec = {**structural(QueueSpec), "default": {}}
    validation_rule.add_to_queue(spec)
    schema = crd_schema.whole(JobQueue.__doc__ or "", spec, _queue_status(), required=False)
    schema["x-kubernetes-validations"] = [_name_rule()]
    return _KindPresentation(
        "jobqueues",
        ("jq",),
        False,
        schema,
        (
            ("Weight", ".spec.weight"),
            ("Running", ".status.running", "integer"),
            ("Waiting", ".status.waiting", "integer"),
            ("Share", ".status.share"),
        ),
        (
            ("CPU", ".spec.quota.cpu"),
            ("Memory", ".spec.quota.memory"),
            ("GPU", ".spec.quota.gpu"),
            ("Borrow", ".spec.borrow", "boolean"),
            ("Members", ".spec.members"),
        ),
    )


def _queue_status() -> Schema:
    return crd_schema.status(
        {
            "running": crd_schema.integer("Number of runs that hold resources."),
            "waiting": crd_schema.integer("Number of runs that wait."),
            "used": {**crd_schema.amounts("Resources that its runs hold in total.")},
            "share": crd_schema.text("The largest fraction of any resource that its runs hold."),
        }
    )


def _gpu_node() -> _KindPresentation:
    schema = crd_schema.whole(
        "The GPUs of a node, as its agent reports them.", gpu_node_schema.spec(), gpu_node_schema.status(), required=False
    )
    return _KindPresentation(
        "gpunodes",
        ("gn",),
        False,
        schema,
        (
            ("Type", ".status.type"),
            ("GPUs", ".status.count", "integer"),
            ("Healthy", ".status.healthy", "integer"),
            ("By", ".status.handedOutBy"),
        ),
        (
            ("Mode", ".spec.mode"),
            ("Driver", ".status.driver"),
            ("Memory", ".status.memory"),
            ("Reported", ".status.heartbeat", "date"),
        ),
        (".spec.mode",),
    )


def _name_rule() -> Schema:
    return rule(
        f"size(self.metadata.name) <= {names.NAME_LIMIT} && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",
        f"the name must be lower-case letters, digits and dashes, a letter first, and {names.NAME_LIMIT} characters at most",
    )


_LOOKS = {"TrainingJob": _training_job, "JobQueue": _job_queue, "ModelService": _model_service, "GpuNode": _gpu_node}
