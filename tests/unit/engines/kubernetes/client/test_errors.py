import json

import pytest

from fairway.engines.kubernetes.client import errors
from fairway.errors import ConflictError, DeniedError, NotFoundError, UnavailableError


def status(code, reason, message="words", **details):
    return json.dumps(
        {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, "details": details}
    ).encode()


@pytest.mark.parametrize(
    ("code", "reason", "kind", "exit_code"),
    [
        (404, "NotFound", errors.NotFound, 3),
        (409, "Conflict", errors.Conflict, 5),
        (409, "AlreadyExists", errors.AlreadyExists, 5),
        (410, "Gone", errors.Gone, 1),
        (410, "Expired", errors.Gone, 1),
        (403, "Forbidden", errors.Forbidden, 5),
        (401, "Unauthorized", errors.Unauthorized, 5),
        (422, "Invalid", errors.Invalid, 2),
        (400, "BadRequest", errors.BadRequest, 2),
        (415, "UnsupportedMediaType", errors.BadRequest, 2),
        (429, "TooManyRequests", errors.TooManyRequests, 4),
        (500, "ServerTimeout", errors.ServerTimeout, 4),
        (504, "Timeout", errors.ServerTimeout, 4),
        (503, "ServiceUnavailable", errors.Unavailable, 4),
        (500, "InternalError", errors.ApiError, 1),
    ],
)
def test_reasons(code, reason, kind, exit_code):
    error = errors.failure("get Pod a/b", code, status(code, reason, "the server's words"))
    assert type(error) is kind
    assert error.message == f"cannot get Pod a/b: the server's words (HTTP {code})"
    assert (error.exit_code, error.asked, error.http) == (exit_code, "get Pod a/b", code)


def test_they_are_our_errors_too():
    for kind, ours in (
        (errors.NotFound, NotFoundError),
        (errors.AlreadyExists, ConflictError),
        (errors.Forbidden, DeniedError),
        (errors.ServerTimeout, UnavailableError),
    ):
        assert issubclass(kind, ours)


def test_causes_by_field():
    body = status(422, "Invalid", causes=[{"reason": "FieldValueInvalid", "message": "too many", "field": "spec.size"}])
    error = errors.failure("apply", 422, body)
    assert isinstance(error, errors.Invalid)
    assert [str(mistake) for mistake in error.mistakes] == ["spec.size: too many"]


def test_later():
    error = errors.failure("evict", 429, status(429, "TooManyRequests", retryAfterSeconds=7))
    assert (error.retry_after, error.disruption_budget) == (7.0, False)
    assert errors.failure("evict", 429, b"busy", "3").retry_after == 3.0
    budget = errors.failure("evict", 429, status(429, "TooManyRequests", causes=[{"reason": "DisruptionBudget"}]))
    assert budget.disruption_budget


def test_who_is_no_api_server():
    error = errors.failure("get Pod a/b", 502, b"<html>bad gateway</html>")
    assert isinstance(error, errors.Unavailable)
    assert "<html>bad gateway</html>" in error.message


def test_only_a_missing_permission_sends_to_the_administrator():
    rbac = errors.failure("list pods", 403, status(403, "Forbidden", 'pods is forbidden: User "ann" cannot list resource "pods"'))
    quota = errors.failure("create Pod", 403, status(403, "Forbidden", "exceeded quota: team, requested: pods=1"))
    assert "permission" in rbac.fix
    assert quota.fix == ""


def test_nobody_answers():
    error = errors.unreachable("create Pod", "https://x", "refused", unknown=True)
    assert error.unknown
    assert error.message == "cannot create Pod: https://x does not answer: refused; the request may have been executed"
    assert not errors.unreachable("create Pod", "https://x", "refused", unknown=False).unknown
