"""Parts of MLflow's REST API that Fairway does not implement: each responds with an MLflow error that names the part."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from fairway.api.mlflow.response import answer

STATUS = 501
"""Clients do not retry a request with this status."""
_NO_MULTIPART = "Multipart upload is not supported for the current artifact repository"
"""Clients look for this message, and then send the file in one piece."""
_PARTS = {
    "mlflow/traces": ("traces", "keep them in a server of OpenTelemetry or MLflow: MLFLOW_TRACKING_URI of that program"),
    "mlflow/unified-traces": ("traces", ""),
    "mlflow/get-online-trace-details": ("traces", ""),
    "mlflow/datasets": ("evaluation datasets", "log what a run reads with mlflow.log_input"),
    "mlflow/scorers": ("scorers", ""),
    "mlflow/issues": ("issues of traces", ""),
    "mlflow/label-schemas": ("label schemas", ""),
    "mlflow/review-queues": ("review queues", ""),
    "mlflow/gateway": ("the AI gateway", "serve a model with `fairway serve`"),
    "mlflow/prompt-optimization": ("optimization of prompts", ""),
    "mlflow/mcp-servers": ("MCP servers", ""),
    "mlflow/mcp": ("MCP servers", ""),
    "mlflow/webhooks": ("webhooks", "follow events with `fairway events --follow`"),
    "mlflow/workspaces": ("workspaces", "a namespace of Fairway takes their place"),
    "mlflow/jobs": ("jobs of the MLflow server", "use `fairway submit`"),
    "mlflow/runs/create-promptlab-run": ("runs of the prompt lab", ""),
    "mlflow/artifacts/presigned-upload-url": ("presigned URLs", "upload through the artifact routes"),
    "mlflow/artifacts/presigned-download-url": ("presigned URLs", "download through the artifact routes"),
    "mlflow-artifacts/presigned": ("presigned URLs", "download through the artifact routes"),
    "mlflow-artifacts/mpu": (_NO_MULTIPART, ""),
}


async def unavailable(scope: Scope, receive: Receive, send: Send) -> bool:
    """Respond to a request for an unimplemented part. Return False, without sending anything, for any other path."""
    _, _, below = scope["path"].partition("api/")
    _, _, path = below.partition("/")
    part_path = next((part for part in _PARTS if path == part or path.startswith(f"{part}/")), None)
    if part_path is None:
        return False
    name, fix = _PARTS[part_path]
    message = (
        name if name == _NO_MULTIPART else f"Fairway has no {name.removeprefix('the ')} ({scope['method']} {scope['path'][:200]})"
    )
    body = {"error_code": "NOT_IMPLEMENTED", "message": f"{message}; {fix}" if fix else message}
    await answer(body, STATUS)(scope, receive, send)
    return True
