"""Claims, volumes and storage classes."""

from __future__ import annotations

from fairway.engines.kubernetes.objects.meta import ObjectReference, Part, Thing
from fairway.engines.kubernetes.objects.selecting import LabelSelector, NodeSelector, ResourceNeeds


class ClaimSpec(Part, frozen=True):
    """The storage that a claim requests."""

    access_modes: tuple[str, ...] = ()
    storage_class_name: str | None = None
    volume_name: str = ""
    volume_mode: str = "Filesystem"
    resources: ResourceNeeds = ResourceNeeds()
    selector: LabelSelector | None = None


class ClaimStatus(Part, frozen=True):
    """Whether the claim is bound to a volume."""

    phase: str = ""


class Claim(Thing, frozen=True):
    """A PersistentVolumeClaim."""

    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class VolumeNodeAffinity(Part, frozen=True):
    """The nodes from which a volume can be reached."""

    required: NodeSelector | None = None


class CsiSource(Part, frozen=True):
    """The driver behind a volume."""

    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(Part, frozen=True):
    """The properties of a volume."""

    capacity: dict[str, str] = {}
    storage_class_name: str = ""
    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: ObjectReference | None = None
    csi: CsiSource | None = None
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"


class PersistentVolume(Thing, frozen=True):
    """A volume."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: ClaimStatus = ClaimStatus()


class TopologyRule(Part, frozen=True):
    """A node label, and its allowed values."""

    key: str
    values: tuple[str, ...] = ()


class TopologyTerm(Part, frozen=True):
    """Rules that must all be met."""

    match_label_expressions: tuple[TopologyRule, ...] = ()


class StorageClass(Thing, frozen=True):
    """How volumes are provisioned."""

    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class AttachLimit(Part, frozen=True):
    """How many volumes of a driver can be attached to a node."""

    count: int | None = None


class NodeDriver(Part, frozen=True):
    """A driver of volumes on a node."""

    name: str
    allocatable: AttachLimit | None = None


class NodeDrivers(Part, frozen=True):
    """All drivers of a node."""

    drivers: tuple[NodeDriver, ...] | None = None
    """A kubelet writes null where there are none."""


class CsiNode(Thing, frozen=True):
    """The volume drivers of the node of the same name."""

    spec: NodeDrivers = NodeDrivers()
