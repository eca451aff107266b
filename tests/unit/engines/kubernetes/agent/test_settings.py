"""Settings that the DaemonSet passes to an agent."""

from __future__ import annotations

import pytest

from fairway.engines.kubernetes.agent.agent import AgentSettings
from fairway.errors import UsageError


def test_the_usual_ones() -> None:
    found = AgentSettings.from_environment({"FAIRWAY_AGENT_NODE": "n", "FAIRWAY_AGENT_MANAGED": "false"})
    assert (found.node, found.managed, found.port, found.every, found.settle) == ("n", False, 0, 5.0, 60.0)


def test_without_a_node_it_says_what_is_missing() -> None:
    with pytest.raises(UsageError, match="FAIRWAY_AGENT_NODE is not set") as told:
        AgentSettings.from_environment({})
    assert "spec.nodeName" in told.value.fix
