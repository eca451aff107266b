"""The resources that are built in, so that they need no discovery."""

from __future__ import annotations

from typing import Any

from fairway.engines.kubernetes import objects
from fairway.engines.kubernetes.client.paths import Resource
from fairway.spec.crd import GROUP, VERSION

PODS = Resource(objects.Pod, "", "v1", "pods", "Pod")
NODES = Resource(objects.Node, "", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource(objects.Namespace, "", "v1", "namespaces", "Namespace", namespaced=False)
SERVICES = Resource(objects.Service, "", "v1", "services", "Service")
CONFIG_MAPS = Resource(objects.ConfigMap, "", "v1", "configmaps", "ConfigMap")
SECRETS = Resource(objects.Secret, "", "v1", "secrets", "Secret")
CLAIMS = Resource(objects.Claim, "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource(objects.PersistentVolume, "", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
STORAGE_CLASSES = Resource(objects.StorageClass, "storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
CSI_NODES = Resource(objects.CsiNode, "storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
PRIORITY_CLASSES = Resource(
    objects.PriorityClass, "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
LEASES = Resource(objects.Lease, "coordination.k8s.io", "v1", "leases", "Lease")
EVENTS = Resource(objects.Event, "events.k8s.io", "v1", "events", "Event")
DEPLOYMENTS = Resource(objects.Deployment, "apps", "v1", "deployments", "Deployment")
DEFINITIONS = Resource(
    objects.Definition, "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
TRAINING_JOBS = Resource(objects.Custom, GROUP, VERSION, "trainingjobs", "TrainingJob")
MODEL_SERVICES = Resource(objects.Custom, GROUP, VERSION, "modelservices", "ModelService")
JOB_QUEUES = Resource(objects.Custom, GROUP, VERSION, "jobqueues", "JobQueue", namespaced=False)
GPU_NODES = Resource(objects.GpuNode, GROUP, VERSION, "gpunodes", "GpuNode", namespaced=False)

_BUILT_IN: tuple[Resource[Any], ...] = (
    PODS, NODES, NAMESPACES, SERVICES, CONFIG_MAPS, SECRETS, CLAIMS, VOLUMES, STORAGE_CLASSES, CSI_NODES, PRIORITY_CLASSES,
    LEASES, EVENTS, DEPLOYMENTS, DEFINITIONS, TRAINING_JOBS, MODEL_SERVICES, JOB_QUEUES, GPU_NODES,
)  # fmt: skip

BY_KIND: dict[tuple[str, str], Resource[Any]] = {(resource.api_version, resource.kind): resource for resource in _BUILT_IN}
"""By apiVersion and kind, as manifests name them."""
