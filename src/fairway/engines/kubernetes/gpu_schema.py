"""The schema of `GpuNode`: `spec` is written by an administrator, `status` by the node's agent. Pure."""

from __future__ import annotations

from fairway.engines.kubernetes import schemas
from fairway.engines.kubernetes.schemas import Schema


def spec() -> Schema:
    """Return the schema of `spec`, which an administrator writes."""
    return {
        "type": "object",
        "description": "How the GPUs of this node are allocated.",
        "default": {},
        "properties": {
            "managed": {
                "type": "boolean",
                "default": False,
                "description": "Whether Fairway's scheduler allocates them. Ignored on a node that runs a device plug-in.",
            },
            "mode": {
                "type": "string",
                "enum": ["whole", "shared"],
                "default": "shared",
                "description": "whole: a GPU belongs to one pod; shared: pods may also request parts of a GPU.",
            },
            "exclude": {
                "type": "array",
                "items": {"type": "string"},
                "description": "UUIDs of GPUs on which nothing is placed.",
            },
        },
    }


def status() -> Schema:
    """Return the schema of `status`, which the agent writes."""
    gpu: Schema = {
        "uuid": schemas.text("UUID of the GPU."),
        "index": schemas.integer("Index of the GPU on the node."),
        "type": schemas.text("Type of the GPU as the probe reports it: A100."),
        "memory": {"type": "integer", "format": "int64", "description": "Bytes."},
        "numa": schemas.integer("NUMA node of the GPU; -1 when unknown."),
        "island": schemas.text("Island of the GPU; direct links connect the GPUs of one island."),
        "healthy": {"type": "boolean", "description": "Whether pods may be placed on it."},
        "reason": schemas.text("Why it is not healthy."),
    }
    return schemas.status(
        {
            "type": schemas.text("Type of the GPUs as the probe reports it."),
            "count": schemas.integer("Number of GPUs."),
            "healthy": schemas.integer("Number of healthy GPUs."),
            "memory": schemas.text("Memory of one GPU."),
            "driver": schemas.text("Version of the driver."),
            "heartbeat": {
                "type": "string",
                "format": "date-time",
                "description": "When the agent last reported a change.",
            },
            "handedOutBy": schemas.text("What allocates the GPUs: Fairway, a device plug-in, or nobody."),
            "endpoint": schemas.text("Address at which the agent serves GPU usage."),
            "faults": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Work that fails and that the agent retries, each with its cause.",
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
