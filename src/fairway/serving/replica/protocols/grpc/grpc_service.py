"""The gRPC services: routes paths to methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fairway.serving.replica.batching.batcher import Batcher
from fairway.serving.replica.model.served_model import ReplicaResponse, ServedModel
from fairway.serving.replica.protocols.grpc import grpc_tfserving
from fairway.serving.replica.protocols.grpc.grpc_inference import GrpcInferCodec, check_name
from fairway.serving.replica.protocols.grpc.grpc_tfserving import (
    GrpcClassifyCodec,
    GrpcPredictCodec,
    GrpcRegressCodec,
    check_spec,
    spec_of,
)
from fairway.serving.replica.protocols.grpc.message_frame import CONTENT_TYPE, OK_HEADERS, frame, unframed
from fairway.serving.replica.protocols.grpc.proto_definition import definitions
from fairway.serving.replica.protocols.grpc.protobuf import Message
from fairway.serving.replica.protocols.tfserving_row import SIGNATURE
from fairway.serving.replica.protocols.triton_extension import EXTENSIONS, LOGGING, configuration, statistics
from fairway.serving.replica.request_error import RequestError, bad
from fairway.serving.replica.telemetry.replica_metrics import ReplicaMetrics
from fairway.state.model import TensorSpec
from fairway.version import __version__

INFERENCE = "/inference.GRPCInferenceService/"
PREDICTION = "/tensorflow.serving.PredictionService/"
STREAM_INFER = f"{INFERENCE}ModelStreamInfer"
HEALTH_WATCH = "/grpc.health.v1.Health/Watch"
SERVICES = ("inference.GRPCInferenceService", "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService")
SERVING, NOT_SERVING = 1, 2
_SMALL = 1 << 16
"""Maximum bytes of a decompressed metadata request."""
_AVAILABLE = 30
_PARAMETERS: dict[type, str] = {bool: "bool_param", int: "uint32_param", str: "string_param"}
"""The field of a log setting that holds a value of a type."""
_NO_REGIONS = "this server does not support shared memory: send tensors in the request"

Call = Callable[[bytes], ReplicaResponse]
"""A metadata method: maps the body of a request to an answer."""


@dataclass(slots=True)
class GrpcMethods:
    """The gRPC methods of one model's server, without the streaming inference methods."""

    model: ServedModel
    batcher: Batcher
    metrics: ReplicaMetrics
    most: int
    """Maximum bytes of a request."""
    draining: Callable[[], bool]
    now: Callable[[], float]

    def forms(self) -> dict[str, GrpcInferCodec | GrpcPredictCodec | GrpcClassifyCodec | GrpcRegressCodec]:
        """Return the inference methods with one request and one answer."""
        if not self.model.signature.inputs:
            return {}
        return {
            f"{INFERENCE}ModelInfer": GrpcInferCodec(self.model, self.most),
            f"{PREDICTION}Predict": GrpcPredictCodec(self.model, self.most),
            f"{PREDICTION}Classify": GrpcClassifyCodec(self.model, self.most),
            f"{PREDICTION}Regress": GrpcRegressCodec(self.model, self.most),
        }

    def calls(self) -> dict[str, Call]:
        """Return the metadata methods."""
        inference: dict[str, Callable[[Message], Message]] = {
            "ServerLive": lambda _: {"live": True},
            "ServerReady": lambda _: {"ready": not self.draining()},
            "ModelReady": self._model_ready,
            "ServerMetadata": lambda _: {"name": "fairway", "version": __version__, "extensions": EXTENSIONS},
            "ModelMetadata": self._metadata,
            "ModelConfig": self._config,
            "ModelStatistics": self._statistics,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
            "SystemSharedMemoryStatus": lambda _: {},
            "CudaSharedMemoryStatus": lambda _: {},
            "SystemSharedMemoryRegister": _refuse(_NO_REGIONS),
            "CudaSharedMemoryRegister": _refuse(_NO_REGIONS),
            "SystemSharedMemoryUnregister": lambda _: {},
            "CudaSharedMemoryUnregister": lambda _: {},
            "TraceSetting": self._trace,
            "LogSettings": self._log,
        }
        methods = {f"{INFERENCE}{name}": do for name, do in inference.items()}
        methods["/tensorflow.serving.ModelService/GetModelStatus"] = self._status
        methods[f"{PREDICTION}GetModelMetadata"] = self._signatures
        methods["/grpc.health.v1.Health/Check"] = lambda request: {"status": self.health(request.get("service", ""))}
        methods["/grpc.health.v1.Health/List"] = lambda _: {
            "statuses": {name: {"status": self.health(name)} for name in ("", *SERVICES)}
        }
        return {path: _called(path, do) for path, do in methods.items()}

    def health(self, service: str) -> int:
        """Return the status of a service, or of the whole server for an empty name; raise 404 for an unknown service."""
        if service and service not in SERVICES:
            message = f"unknown service {service[:200]!r}"
            raise RequestError(404, message, fix=f"the services are: {', '.join(SERVICES)}")
        return NOT_SERVING if self.draining() else SERVING

    def _model_ready(self, asked: Message) -> Message:
        try:
            self._check(asked)
        except RequestError:
            return {"ready": False}
        return {"ready": not self.draining()}

    def _metadata(self, asked: Message) -> Message:
        self._check(asked)
        model = self.model
        return {
            "name": model.name,
            "versions": [model.version],
            "platform": model.platform,
            "inputs": [_told(spec) for spec in model.signature.inputs],
            "outputs": [_told(spec) for spec in model.signature.outputs],
        }

    def _config(self, asked: Message) -> Message:
        self._check(asked)
        types = definitions().enum("inference.DataType")
        config = configuration(self.model, self.batcher)
        for tensor in (*config["input"], *config["output"]):
            tensor["data_type"] = types[tensor["data_type"]]
            tensor.pop("format", None)
        return {"config": config}

    def _statistics(self, asked: Message) -> Message:
        if asked.get("name"):
            self._check(asked)
        return {"model_stats": [statistics(self.model, self.metrics, self.now())]}

    def _index(self, asked: Message) -> Message:
        state = "UNAVAILABLE" if self.draining() else "READY"
        if asked.get("ready") and self.draining():
            return {}
        return {"models": [{"name": self.model.name, "version": self.model.version, "state": state}]}

    def _load(self, asked: Message) -> Message:
        check_name(self.model, asked.get("model_name", ""), "")
        if asked.get("parameters"):
            raise bad(
                "the model is already loaded, and cannot be reloaded with parameters",
                "roll out another version: `fairway rollout start`",
            )
        return {}

    def _unload(self, asked: Message) -> Message:
        check_name(self.model, asked.get("model_name", ""), "")
        raise bad("this replica serves only this model, and cannot unload it", "use `fairway scale` or `fairway delete`")

    def _trace(self, asked: Message) -> Message:
        if any(setting.get("value") for setting in asked.get("settings", {}).values()):
            raise RequestError(501, "trace settings cannot be changed by a client")
        return {"settings": {"trace_level": {"value": ["OFF"]}, "trace_rate": {"value": ["1000"]}}}

    def _log(self, asked: Message) -> Message:
        if any(asked.get("settings", {}).values()):
            raise RequestError(501, "log settings cannot be changed by a client")
        return {"settings": {name: {_PARAMETERS[type(value)]: value} for name, value in LOGGING.items()}}

    def _status(self, asked: Message) -> Message:
        check_spec(self.model, asked.get("model_spec", {}))
        version = int(self.model.version) if self.model.version.isdigit() else 0
        return {"model_version_status": [{"version": version, "state": _AVAILABLE, "status": {"error_code": 0}}]}

    def _signatures(self, asked: Message) -> Message:
        check_spec(self.model, asked.get("model_spec", {}))
        fields = asked.get("metadata_field", [])
        if list(fields) != ["signature_def"]:
            message = f"metadata_field is {[str(field)[:40] for field in fields][:5]}"
            raise bad(message, "request signature_def")
        signature = {
            "inputs": {spec.name: _tensor_info(spec) for spec in self.model.signature.inputs},
            "outputs": {spec.name: _tensor_info(spec) for spec in self.model.signature.outputs},
            "method_name": "tensorflow/serving/predict",
        }
        kind = f"{grpc_tfserving.PACKAGE}.SignatureDefMap"
        value = definitions().schema.encode(kind, {"signature_def": {SIGNATURE: signature}})
        wrapped = {"type_url": f"type.googleapis.com/{kind}", "value": value}
        return {"model_spec": spec_of(self.model), "metadata": {"signature_def": wrapped}}

    def _check(self, asked: Message) -> None:
        check_name(self.model, asked.get("name", ""), asked.get("version", ""))


def _called(path: str, do: Callable[[Message], Message]) -> Call:
    """Wrap a method on messages as a method on bodies."""

    def call(body: bytes) -> ReplicaResponse:
        schemas = definitions()
        method = schemas.methods[path]
        result = do(schemas.schema.decode(method.request, unframed(body, _SMALL)))
        message = schemas.schema.encode(method.answer, result)
        return ReplicaResponse(frame(message), headers=list(OK_HEADERS), content_type=CONTENT_TYPE)

    return call


def _refuse(reason: str) -> Callable[[Message], Message]:
    def refuse(_: Message) -> Message:
        raise RequestError(501, reason)

    return refuse


def _told(spec: TensorSpec) -> Message:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def _tensor_info(spec: TensorSpec) -> Message:
    dims = {"dim": [{"size": length} for length in spec.shape]}
    return {"name": spec.name, "dtype": grpc_tfserving.NUMBERS[spec.datatype], "tensor_shape": dims}
