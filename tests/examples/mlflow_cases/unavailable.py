# ruff: noqa: PT017
"""Cases of features that Fairway does not have: every call returns an MLflow error that names the feature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlflow.entities.evaluation_dataset import EvaluationDataset  # noqa: F401 - the client needs it loaded.
from mlflow.exceptions import MlflowException

from mlflow_cases.table import CASES, Case, Place, case, refused

WHY = "not a part of Fairway"
Call = Callable[[Any, Place], Any]
CALLS: dict[str, tuple[str, Call]] = {
    "create_webhook": (
        "webhooks",
        lambda client, at: client.create_webhook("w", "https://example.org", ["registered_model.created"]),
    ),
    "delete_webhook": ("webhooks", lambda client, at: client.delete_webhook("w")),
    "get_webhook": ("webhooks", lambda client, at: client.get_webhook("w")),
    "list_webhooks": ("webhooks", lambda client, at: client.list_webhooks(max_results=5)),
    "update_webhook": ("webhooks", lambda client, at: client.update_webhook("w", name="x")),
    "test_webhook": ("webhooks", lambda client, at: client.test_webhook("w")),
    "create_workspace": ("workspaces", lambda client, at: client.create_workspace("team")),
    "delete_workspace": ("workspaces", lambda client, at: client.delete_workspace("team")),
    "get_workspace": ("workspaces", lambda client, at: client.get_workspace("team")),
    "list_workspaces": ("workspaces", lambda client, at: client.list_workspaces()),
    "update_workspace": ("workspaces", lambda client, at: client.update_workspace("team", description="x")),
    "create_dataset": ("evaluation datasets", lambda client, at: client.create_dataset("d")),
    "get_dataset": ("evaluation datasets", lambda client, at: client.get_dataset("d-1")),
    "delete_dataset": ("evaluation datasets", lambda client, at: client.delete_dataset("d-1")),
    "search_datasets": ("evaluation datasets", lambda client, at: client.search_datasets()),
    "set_dataset_tags": ("evaluation datasets", lambda client, at: client.set_dataset_tags("d-1", {"a": "1"})),
    "delete_dataset_tag": ("evaluation datasets", lambda client, at: client.delete_dataset_tag("d-1", "a")),
    "add_dataset_to_experiments": ("evaluation datasets", lambda client, at: client.add_dataset_to_experiments("d-1", ["0"])),
    "remove_dataset_from_experiments": (
        "evaluation datasets",
        lambda client, at: client.remove_dataset_from_experiments("d-1", ["0"]),
    ),
    "search_traces": ("traces", lambda client, at: client.search_traces(["0"])),
    "get_trace": ("traces", lambda client, at: client.get_trace("tr-1")),
    "delete_traces": ("traces", lambda client, at: client.delete_traces("0", trace_ids=["tr-1"])),
    "set_trace_tag": ("traces", lambda client, at: client.set_trace_tag("tr-1", "a", "b")),
    "delete_trace_tag": ("traces", lambda client, at: client.delete_trace_tag("tr-1", "a")),
    "link_traces_to_run": ("traces", lambda client, at: client.link_traces_to_run(["tr-1"], at.run())),
    "unlink_traces_from_run": ("traces", lambda client, at: client.unlink_traces_from_run(["tr-1"], at.run())),
    "create_mcp_server": ("MCP servers", lambda client, at: client.create_mcp_server("s")),
    "get_mcp_server": ("MCP servers", lambda client, at: client.get_mcp_server("s")),
    "delete_mcp_server": ("MCP servers", lambda client, at: client.delete_mcp_server("s")),
    "update_mcp_server": ("MCP servers", lambda client, at: client.update_mcp_server("s", description="x")),
    "search_mcp_servers": ("MCP servers", lambda client, at: client.search_mcp_servers()),
    "search_mcp_server_versions": ("MCP servers", lambda client, at: client.search_mcp_server_versions("s")),
    "search_mcp_access_endpoints": ("MCP servers", lambda client, at: client.search_mcp_access_endpoints("s")),
    "get_mcp_server_version": ("MCP servers", lambda client, at: client.get_mcp_server_version("s", "1")),
    "get_mcp_server_version_by_alias": ("MCP servers", lambda client, at: client.get_mcp_server_version_by_alias("s", "a")),
    "get_latest_mcp_server_version": ("MCP servers", lambda client, at: client.get_latest_mcp_server_version("s")),
    "get_mcp_access_endpoint": ("MCP servers", lambda client, at: client.get_mcp_access_endpoint("s", "e")),
    "delete_mcp_access_endpoint": ("MCP servers", lambda client, at: client.delete_mcp_access_endpoint("s", "e")),
    "delete_mcp_server_alias": ("MCP servers", lambda client, at: client.delete_mcp_server_alias("s", "a")),
    "delete_mcp_server_tag": ("MCP servers", lambda client, at: client.delete_mcp_server_tag("s", "a")),
    "delete_mcp_server_version": ("MCP servers", lambda client, at: client.delete_mcp_server_version("s", "1")),
    "delete_mcp_server_version_tag": ("MCP servers", lambda client, at: client.delete_mcp_server_version_tag("s", "1", "a")),
    "set_mcp_server_alias": ("MCP servers", lambda client, at: client.set_mcp_server_alias("s", "a", "1")),
    "set_mcp_server_tag": ("MCP servers", lambda client, at: client.set_mcp_server_tag("s", "a", "1")),
    "set_mcp_server_version_tag": ("MCP servers", lambda client, at: client.set_mcp_server_version_tag("s", "1", "a", "1")),
    "create_mcp_access_endpoint": (
        "MCP servers",
        lambda client, at: client.create_mcp_access_endpoint("s", "https://example.org", server_version="1"),
    ),
    "update_mcp_access_endpoint": (
        "MCP servers",
        lambda client, at: client.update_mcp_access_endpoint("s", "e", url="https://example.org"),
    ),
    "create_mcp_server_version": (
        "MCP servers",
        lambda client, at: client.create_mcp_server_version({"name": "org/s", "version": "1.0.0", "description": "d"}),
    ),
    "update_mcp_server_version": ("MCP servers", lambda client, at: client.update_mcp_server_version("s", "1", status="active")),
    "refresh_mcp_server_version_tools": ("MCP servers", lambda client, at: client.refresh_mcp_server_version_tools("s", "1")),
    "register_prompt": ("prompts", lambda client, at: client.register_prompt(at.name("p"), "Hello {{name}}")),
    "create_prompt_version": ("prompts", lambda client, at: client.create_prompt_version(at.name("p"), "Hello")),
    "create_prompt": ("prompts", lambda client, at: client.create_prompt(at.name("p"))),
    "load_prompt": ("prompts", lambda client, at: client.load_prompt(at.name("p"), version=1)),
    "get_prompt_version_by_alias": ("prompts", lambda client, at: client.get_prompt_version_by_alias(at.name("p"), "a")),
    "delete_prompt_version": ("prompts", lambda client, at: client.delete_prompt_version(at.name("p"), "1")),
    "delete_prompt_tag": ("prompts", lambda client, at: client.delete_prompt_tag(at.name("p"), "a")),
    "set_prompt_tag": ("prompts", lambda client, at: client.set_prompt_tag(at.name("p"), "a", "1")),
    "set_prompt_alias": ("prompts", lambda client, at: client.set_prompt_alias(at.name("p"), "a", 1)),
    "delete_prompt_alias": ("prompts", lambda client, at: client.delete_prompt_alias(at.name("p"), "a")),
    "set_prompt_version_tag": ("prompts", lambda client, at: client.set_prompt_version_tag(at.name("p"), 1, "a", "1")),
    "delete_prompt_version_tag": ("prompts", lambda client, at: client.delete_prompt_version_tag(at.name("p"), 1, "a")),
    "delete_prompt": ("prompts", lambda client, at: client.delete_prompt(at.name("p"))),
    "search_prompt_versions": ("prompts", lambda client, at: client.search_prompt_versions(at.name("p"))),
    "link_prompt_version_to_run": (
        "prompts",
        lambda client, at: client.link_prompt_version_to_run(at.run(), f"prompts:/{at.name('p')}/1"),
    ),
    "detach_prompt_from_run": (
        "prompts",
        lambda client, at: client.detach_prompt_from_run(at.run(), f"prompts:/{at.name('p')}/1"),
    ),
}
OTHERS = {
    "start_trace": "kept by the client until the trace ends; what it then sends is refused as a trace",
    "end_trace": "as start_trace",
    "start_span": "as start_trace",
    "end_span": "as start_trace",
    "link_prompt_versions_to_trace": "needs a trace and a prompt",
    "get_workspace_store_uri": "answered by the client alone",
    "parse_prompt_uri": "answered by the client alone",
}
"""Methods without a case, and why."""


@case("get_prompt", "none")
def _(at: Place) -> None:
    assert at.client.get_prompt(at.name("p")) is None


@case("get_prompt_version", "none")
def _(at: Place) -> None:
    refused(lambda: at.client.get_prompt_version(at.name("p"), 1), "RESOURCE_DOES_NOT_EXIST", "prompt")


@case("link_prompt_version_to_model", "none")
def _(at: Place) -> None:
    refused(lambda: at.client.link_prompt_version_to_model(at.name("p"), "1", "m-0"), "RESOURCE_DOES_NOT_EXIST", at.name("p"))


@case("search_prompts", "none")
def _(at: Place) -> None:
    assert at.client.search_prompts(f"name = '{at.name('p')}'") == []


@case("list_logged_prompts", "none")
def _(at: Place) -> None:
    assert at.client.list_logged_prompts(at.run()) == []


def _refusing(part: str, call: Call) -> Callable[[Place], None]:
    def check(at: Place) -> None:
        try:
            made = call(at.client, at)
        except (MlflowException, NotImplementedError) as problem:
            assert part.split()[-1].lower().rstrip("s") in str(problem).lower(), f"{problem} does not name {part}"
            return
        raise AssertionError(f"it was answered: {made!r}")

    return check


for _method, (_part, _call) in CALLS.items():
    CASES.append(Case(_method, f"answered that there are no {_part}", _refusing(_part, _call), WHY, unavailable=True))
