"""Checks that span several fields of a document, as CEL rules. Each repeats a check of the models, with the same message. Pure.

An API server estimates what a rule may cost before it accepts it, so every field that a rule reads has a bound.
"""

from __future__ import annotations

from fairway.engines.kubernetes.crd import schema
from fairway.engines.kubernetes.crd.schema import Schema, rule

SECRETS, VARIABLE = 64, 256
"""Bounds: secrets of a document, characters of a variable's name."""
REFERENCE = 512
"""Maximum number of characters of a model's name and version, and of an image's."""


def add_to_job(spec: Schema) -> None:
    """Add the rules of a training job."""
    _of_sources(spec)
    _of_placement(schema.inside(spec["properties"], "roles.*"))
    _bound_secrets(spec)
    schema.add_rules(
        spec,
        rule(
            "self.success != 'launcher' || 'launcher' in self.roles",
            "success: needs a role `launcher`, and there is none; add it to the roles, or choose auto",
        ),
        rule(
            "self.success != 'chief' || 'chief' in self.roles || 'master' in self.roles",
            "success: needs a role `chief`, and there is none; add it to the roles, or choose auto",
        ),
    )


def add_to_service(spec: Schema) -> None:
    """Add the rules of a service."""
    fields = spec["properties"]
    _of_sources(spec)
    _of_placement(spec)
    _bound_secrets(spec)
    fields["model"]["maxLength"] = REFERENCE
    schema.add_rules(
        spec,
        rule(
            "!self.follow || (has(self.model) && size(self.model) > 0)",
            "follow: follows a model, and there is none; remove it, or name a model",
        ),
    )
    rollout = fields["rollout"]
    schema.add_rules(
        rollout,
        rule(
            "!self.inPlace || !(self.strategy in ['blue-green', 'shadow'])",
            "has in_place, and blue-green and shadow keep the old replicas beside the new ones; use strategy: rolling or canary",
        ),
        rule(
            "self.strategy != 'shadow' || !has(self.guard) || !has(self.guard.metric)",
            "guard.metric: compares answers that people saw, and nobody sees those of a shadow release; use strategy: ab",
        ),
        rule(
            "self.strategy == 'shadow' || !has(self.guard) || !has(self.guard.outputs)",
            "guard.outputs: compares answers of both versions to the same request; use strategy: shadow, or remove it",
        ),
    )


def add_to_queue(spec: Schema) -> None:
    """Add the rules of a queue."""
    schema.add_rules(
        spec,
        rule(
            "!has(self.limits) || !has(self.defaults) || !has(self.limits.priority) || !has(self.defaults.priority)"
            " || self.defaults.priority <= self.limits.priority",
            "defaults.priority: is higher than limits allows; write as much or less",
        ),
    )


def _of_sources(spec: Schema) -> None:
    fields = spec["properties"]
    schema.add_rules(
        fields["code"],
        rule(
            "!has(self.path) || !self.path.contains('://')",
            "path: is no folder; for a repository write `code: {git: URL}`",
        ),
    )
    fields["environment"]["properties"]["image"]["maxLength"] = REFERENCE
    schema.add_rules(
        fields["environment"],
        rule(
            "!has(self.container) || self.container != 'always' || (has(self.image) && size(self.image) > 0)",
            "container: needs an image; add `image`, or remove it",
        ),
    )


def _of_placement(holder: Schema) -> None:
    schema.add_rules(
        holder["properties"]["placement"],
        rule(
            "!(has(self.together) && self.together && has(self.apart) && self.apart)",
            "wants replicas together and apart; keep one of them",
        ),
    )


def _bound_secrets(spec: Schema) -> None:
    """Bound the secrets and forbid duplicates; the API server checks that of a set by itself."""
    schema.bound_list(spec, "secrets", SECRETS, VARIABLE)
    spec["properties"]["secrets"]["x-kubernetes-list-type"] = "set"
