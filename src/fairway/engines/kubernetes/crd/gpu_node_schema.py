"""The schema of `GpuNode`: `spec` is written by an administrator, `status` by the node's agent. Pure."""

from __future__ import annotations

from fairway.engines.kubernetes.crd import schema
from fairway.engines.kubernetes.crd.schema import Schema


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
        "uuid": schema.text("UUID of the GPU."),
        "index": schema.integer("Index of the GPU on the node."),
        "type": schema.text("Type of the GPU as the probe reports it: A100."),
        "memory": {"type": "integer", "format": "int64", "description": "Bytes."},
        "numa": schema.integer("NUMA node of the GPU; -1 when unknown."),
        "island": schema.text("Island of the GPU; direct links connect the GPUs of one island."),
        "healthy": {"type": "boolean", "description": "Whether pods may be placed on it."},
        "reason": schema.text("Why it is not healthy."),
    }
    return schema.status(
        {
            "type": schema.text("Type of the GPUs as the probe reports it."),
            "count": schema.integer("Number of GPUs."),
            "healthy": schema.integer("Number of healthy GPUs."),
            "memory": schema.text("Memory of one GPU."),
            "driver": schema.text("Version of the driver."),
            "heartbeat": {
                "type": "string",
                "format": "date-time",
                "description": "When the agent last reported a change.",
            },
            "handedOutBy": schema.text("What allocates the GPUs: Fairway, a device plug-in, or nobody."),
            "endpoint": schema.text("Address at which the agent serves GPU usage."),
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
