"""The schema of `GpuNode`: `spec` is written by an administrator, `status` by the node's agent. Pure."""

from __future__ import annotations

from fairway.engines.kubernetes import schemas
from fairway.engines.kubernetes.schemas import Schema


def spec() -> Schema:
    """Return the schema of `spec`, which an administrator writes."""
    return {
        "type": "object",
        "description": "How the GPUs of this node are handed out.",
        "default": {},
        "properties": {
            "managed": {
                "type": "boolean",
                "default": False,
                "description": "Whether Fairway's scheduler hands them out. Never on a node that runs a device plug-in.",
            },
            "mode": {
                "type": "string",
                "enum": ["whole", "shared"],
                "default": "shared",
                "description": "whole: a GPU is one pod's; shared: pods may ask for parts, too.",
            },
            "exclude": {
                "type": "array",
                "items": {"type": "string"},
                "description": "GPUs by UUID that nothing is placed on.",
            },
        },
    }


def status() -> Schema:
    """Return the schema of `status`, which the agent writes."""
    gpu: Schema = {
        "uuid": schemas.text("Which one."),
        "index": schemas.integer("Its number on the node."),
        "type": schemas.text("What a probe calls it: A100."),
        "memory": {"type": "integer", "format": "int64", "description": "Bytes."},
        "numa": schemas.integer("The NUMA node it hangs on; -1 when unknown."),
        "island": schemas.text("GPUs of one island reach each other over direct links."),
        "healthy": {"type": "boolean", "description": "Whether anything may be placed on it."},
        "reason": schemas.text("Why it is not healthy."),
    }
    return schemas.status(
        {
            "type": schemas.text("What a probe calls them."),
            "count": schemas.integer("GPUs that there are."),
            "healthy": schemas.integer("GPUs that work."),
            "memory": schemas.text("Memory of one."),
            "driver": schemas.text("Version of the driver."),
            "heartbeat": {
                "type": "string",
                "format": "date-time",
                "description": "When the agent last had something new to say.",
            },
            "handedOutBy": schemas.text("Who hands them out: Fairway, a device plug-in, or nobody."),
            "endpoint": schemas.text("Where the agent says how busy they are."),
            "faults": {
                "type": "array",
                "items": {"type": "string"},
                "description": "What the agent fails at and tries again, each with its cause.",
            },
            "gpus": {
                "type": "array",
                "description": "Every GPU.",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uuid"],
                "items": {"type": "object", "required": ["uuid"], "properties": gpu},
            },
        }
    )
