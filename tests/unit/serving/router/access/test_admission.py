"""Access control: keys, rate limits, failed attempts, other origins, host names."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fairway.serving.router.access.admission import AdmittedRequest, RequestAdmission, admit_without_rules, make_admission
from fairway.serving.router.access.failed_attempt import MOST_FAILURES, MOST_PEERS, FailedAttempts, network_of
from fairway.serving.router.access.refusal import RequestRefusal
from fairway.serving.router.message_head import RequestHead, read_request
from fairway.state.serving.access import AccessRules, CorsRule, KeyRule, TlsRule, digest_of, format_key
from fairway.state.serving.route import RoutePlan

SERVICE = "default/mnist"
KEY = format_key(SERVICE, "0a1b2c3d", "5" * 64)
OTHER = format_key("default/cifar", "0a1b2c3d", "5" * 64)
RULE = KeyRule("ci", "0a1b2c3d", digest_of(KEY))


class Clocks:
    def __init__(self) -> None:
        self.now = 1000.0
        self.wall = 5000.0


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def admission(
    clocks: Clocks, access: AccessRules | None = None, before: RequestAdmission | None = None, **plan: object
) -> RequestAdmission:
    access = access if access is not None else AccessRules(keys_required=True, keys=(RULE,))
    whole = RoutePlan(SERVICE, access=access, **plan)  # type: ignore[arg-type]
    made = make_admission(whole, lambda: clocks.now, lambda: clocks.wall, exposed=True, before=before)
    assert made is not None
    return made


def head(*lines: str, method: str = "POST", target: str = "/v2/models/mnist/infer") -> RequestHead:
    return read_request("\r\n".join([f"{method} {target} HTTP/1.1", "Host: h", *lines, "", ""]).encode())


def refused(found: RequestRefusal | AdmittedRequest) -> RequestRefusal:
    assert isinstance(found, RequestRefusal)
    return found


def let_in(found: RequestRefusal | AdmittedRequest) -> AdmittedRequest:
    assert isinstance(found, AdmittedRequest), found
    return found


@pytest.mark.parametrize(
    "line", [f"Authorization: Bearer {KEY}", f"authorization: bearer  {KEY} ", f"X-API-Key: {KEY}", f"api-key: {KEY}"]
)
def test_a_key_is_taken_from_three_headers_and_taken_out(clocks: Clocks, line: str) -> None:
    request_head = head("Accept: */*", line, "X-User: ann")
    assert let_in(admission(clocks).admit(request_head, b"10.0.0.1")).key == "ci"
    assert request_head.lines == [b"Accept: */*", b"X-User: ann"]
    assert KEY.encode() not in request_head.render(b"10.0.0.1", b"id")


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ((), 401),
        (("Authorization: Bearer wrong",), 401),
        (("Authorization: Basic Y2k6eA==",), 401),
        (("Authorization: Bearer",), 401),
        ((f"Authorization: Bearer {KEY}x",), 401),
        ((f"Authorization: Bearer {KEY[:-1]}",), 401),
        ((f"Authorization: Bearer {KEY.upper()}",), 401),
        ((f"X-API-Key: {OTHER}",), 403),
        ((f"X-API-Key: {KEY}{'x' * 9000}",), 401),
        ((f"Authorization: Bearer {KEY}", f"Authorization: Bearer {KEY}"), 400),
        ((f"Authorization: Bearer {KEY}", "Authorization: Bearer other"), 400),
        (("X-API-Key: other", f"Authorization: Bearer {KEY}"), 400),
        (("Authorization: Bearer \xe9\xff",), 401),
    ],
)
def test_what_is_no_valid_key(clocks: Clocks, lines: tuple[str, ...], status: int) -> None:
    raw = "\r\n".join(["POST /v2/x HTTP/1.1", "Host: h", *lines, "", ""]).encode("latin-1")
    refusal = refused(admission(clocks).admit(read_request(raw), b"10.0.0.1"))
    assert refusal.status == status
    assert (b"www-authenticate", b'Bearer realm="fairway"') in refusal.headers or status != 401
    assert KEY not in refusal.reason


def test_the_keys_of_another_plan_count_at_once(clocks: Clocks) -> None:
    one = admission(clocks)
    let_in(one.admit(head(f"X-API-Key: {KEY}"), b"p"))
    two = admission(clocks, AccessRules(keys_required=True), before=one)
    assert refused(two.admit(head(f"X-API-Key: {KEY}"), b"p")).status == 401


def test_an_expired_key(clocks: Clocks) -> None:
    door = admission(clocks, AccessRules(keys_required=True, keys=(replace(RULE, expires=5001.0),)))
    let_in(door.admit(head(f"X-API-Key: {KEY}"), b"p"))
    clocks.wall = 5001.0
    assert refused(door.admit(head(f"X-API-Key: {KEY}"), b"p")).status == 401


def test_a_rate_is_a_bucket_of_one_second_and_survives_a_new_plan(clocks: Clocks) -> None:
    access = AccessRules(keys_required=True, keys=(replace(RULE, rate=2.0),))
    door = admission(clocks, access)
    first = let_in(door.admit(head(f"X-API-Key: {KEY}"), b"p"))
    assert (b"ratelimit-remaining", b"1") in first.headers
    let_in(door.admit(head(f"X-API-Key: {KEY}"), b"p"))
    door = admission(clocks, access, before=door)
    beyond = refused(door.admit(head(f"X-API-Key: {KEY}"), b"p"))
    assert beyond.status == 429
    assert dict(beyond.headers)[b"retry-after"] == b"1"
    assert dict(beyond.headers)[b"ratelimit-limit"] == b"2"
    clocks.now += 0.5
    let_in(door.admit(head(f"X-API-Key: {KEY}"), b"p"))
    assert refused(door.admit(head(f"X-API-Key: {KEY}"), b"p")).status == 429
    clocks.now += 3600.0
    for _ in range(2):
        let_in(door.admit(head(f"X-API-Key: {KEY}"), b"p"))
    assert refused(door.admit(head(f"X-API-Key: {KEY}"), b"p")).status == 429


def test_a_slow_rate_lets_one_in(clocks: Clocks) -> None:
    door = admission(clocks, AccessRules(keys_required=True, keys=(replace(RULE, rate=1 / 60),)))
    let_in(door.admit(head(f"X-API-Key: {KEY}"), b"p"))
    assert dict(refused(door.admit(head(f"X-API-Key: {KEY}"), b"p")).headers)[b"retry-after"] == b"60"


def test_failed_attempts_of_one_address_lock_out_nobody(clocks: Clocks) -> None:
    door = admission(clocks)
    statuses = [refused(door.admit(head("X-API-Key: no"), b"10.0.0.1")).status for _ in range(MOST_FAILURES + 5)]
    assert statuses == [401] * MOST_FAILURES + [429] * 5
    last = refused(door.admit(head("X-API-Key: no"), b"10.0.0.1"))
    assert last.close
    assert int(dict(last.headers)[b"retry-after"]) <= 6
    let_in(door.admit(head(f"X-API-Key: {KEY}"), b"10.0.0.1"))
    assert refused(door.admit(head("X-API-Key: no"), b"10.0.0.2")).status == 401
    clocks.now += 60.0
    assert refused(door.admit(head("X-API-Key: no"), b"10.0.0.1")).status == 401


def test_the_table_of_failures_is_bounded() -> None:
    failed = FailedAttempts()
    for number in range(MOST_PEERS + 100):
        failed.add(b"10.0.%d.%d" % divmod(number, 256), 0.0)
    assert len(failed) == MOST_PEERS


@pytest.mark.parametrize(
    ("one", "other"), [(b"2001:db8:1:2::5", b"2001:db8:1:2:ffff:1:2:3"), (b"2001:db8::1", b"2001:db8:0:0:9::"), (b"::1", b"::2")]
)
def test_a_network_of_ipv6_is_one_sender(one: bytes, other: bytes) -> None:
    assert network_of(one) == network_of(other)
    assert network_of(b"2001:db8:1:3::5") != network_of(b"2001:db8:1:2::5")


@pytest.mark.parametrize("target", ["/fairway/", "/fairway/outcome", "/v2/health/live", "/v2/health/ready"])
def test_what_needs_no_key(clocks: Clocks, target: str) -> None:
    let_in(admission(clocks).admit(head(method="GET", target=target), b"p"))


@pytest.mark.parametrize(
    ("method", "target"),
    [("GET", "/v2/health/live?x"), ("GET", "/v2/health/ready/../../models"), ("POST", "/v2/health/live"),
     ("GET", "/fairway/metrics"),
     ("GET", "/fairway/%2e%2e/v2"), ("GET", "//v2/health/live"), ("GET", "/v2/health/LIVE"), ("OPTIONS", "*"), ("GET", "/")],
)  # fmt: skip
def test_what_needs_one(clocks: Clocks, method: str, target: str) -> None:
    assert refused(admission(clocks).admit(head(method=method, target=target), b"p")).status == 401


def test_errors_in_the_form_of_the_protocol() -> None:
    refusal = RequestRefusal(401, "an API key is needed")
    openai = json.loads(refusal.body(b"/v1/chat/completions"))
    assert openai["error"]["code"] == "invalid_api_key"
    assert openai["error"]["message"] == "an API key is needed"
    for target in (b"/v2/models/x/infer", b"/v1/models/x:predict", b"/invocations"):
        assert json.loads(refusal.body(target)) == {"error": "an API key is needed"}


CORS = CorsRule(("https://app.example.org",), credentials=True)


def preflight(
    origin: str = "https://app.example.org", method: str = "POST", asks: str = "authorization,content-type"
) -> RequestHead:
    lines = (f"Origin: {origin}", f"Access-Control-Request-Method: {method}", f"Access-Control-Request-Headers: {asks}")
    return head(*lines, method="OPTIONS")


def test_a_preflight_needs_no_key(clocks: Clocks) -> None:
    door = admission(clocks, AccessRules(keys_required=True, keys=(RULE,), cors=CORS))
    refusal = refused(door.admit(preflight(), b"p"))
    said = dict(refusal.headers)
    assert refusal.status == 204
    assert said[b"access-control-allow-origin"] == b"https://app.example.org"
    assert said[b"access-control-allow-credentials"] == b"true"
    assert b"authorization" in said[b"access-control-allow-headers"]
    assert said[b"access-control-max-age"] == b"600"
    assert refusal.render(b"/", keep=True, bodiless=False).endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "asked",
    [
        preflight("https://evil.example"),
        preflight("null"),
        preflight("https://app.example.org.evil.example"),
        preflight("http://app.example.org"),
        preflight("https://app.example.org:444"),
        preflight(method="DELETE"),
        preflight(asks="x-secret"),
    ],
)
def test_a_preflight_that_is_refused(clocks: Clocks, asked: RequestHead) -> None:
    refusal = refused(admission(clocks, AccessRules(cors=CORS)).admit(asked, b"p"))
    assert refusal.status == 403
    assert b"access-control-allow-origin" not in dict(refusal.headers)


def test_without_cors_a_preflight_is_a_request_like_others(clocks: Clocks) -> None:
    assert refused(admission(clocks).admit(preflight(), b"p")).status == 401


def test_answers_and_refusals_say_which_origin_may_read_them(clocks: Clocks) -> None:
    door = admission(clocks, AccessRules(keys_required=True, keys=(RULE,), cors=CORS))
    good = let_in(door.admit(head(f"X-API-Key: {KEY}", "Origin: https://app.example.org"), b"p"))
    assert dict(good.headers)[b"access-control-allow-origin"] == b"https://app.example.org"
    assert b"access-control-allow-origin" in good.replaces
    bad = refused(door.admit(head("Origin: https://app.example.org"), b"p"))
    assert dict(bad.headers)[b"access-control-allow-origin"] == b"https://app.example.org"
    foreign = let_in(door.admit(head(f"X-API-Key: {KEY}", "Origin: https://evil.example"), b"p"))
    assert foreign.headers == ((b"vary", b"origin"),)


def test_any_origin_never_with_credentials(clocks: Clocks) -> None:
    both = admission(clocks, AccessRules(cors=CorsRule(("*",), credentials=True)))
    assert refused(both.admit(preflight("https://evil.example"), b"p")).status == 403
    free = admission(clocks, AccessRules(cors=CorsRule(("*",))))
    assert dict(refused(free.admit(preflight("https://evil.example"), b"p")).headers)[b"access-control-allow-origin"] == b"*"


def test_a_plain_connection_to_an_endpoint_with_tls(clocks: Clocks) -> None:
    door = admission(clocks, AccessRules(keys_required=True, keys=(RULE,), tls=TlsRule()))
    refusal = refused(door.admit(head(f"X-API-Key: {KEY}"), b"p"))
    assert (refusal.status, refusal.close) == (426, True)
    request_head = head(f"X-API-Key: {KEY}", "X-Forwarded-Proto: http")
    let_in(door.admit(request_head, b"p", secure=True))
    assert b"x-forwarded-proto: https" in request_head.render(b"p", b"id")


def test_names_of_hosts_beyond_loopback_only_where_they_are_given(clocks: Clocks) -> None:
    let_in(admission(clocks, AccessRules(), host="0.0.0.0").admit(head(), b"p"))
    door = admission(clocks, AccessRules(), host="0.0.0.0", hosts=("h",))
    let_in(door.admit(head(), b"p"))
    evil = read_request(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
    assert refused(door.admit(evil, b"p")).status == 403


def test_pages_of_allowed_origins_may_send_forms_to_loopback(clocks: Clocks) -> None:
    plan = RoutePlan(SERVICE, access=AccessRules(cors=CORS))
    door = make_admission(plan, lambda: 0.0, lambda: 0.0, exposed=False, before=None)
    assert door is not None
    for origin, status in (("https://app.example.org", 0), ("https://evil.example", 403)):
        raw = f"POST / HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\nContent-Type: text/plain\r\n\r\n".encode()
        found = door.admit(read_request(raw), b"p", raw)
        assert (found.status if isinstance(found, RequestRefusal) else 0) == status


def websocket(origin: str = "", *lines: str, host: str = "h") -> RequestHead:
    asks = ("Connection: Upgrade", "Upgrade: websocket", *([f"Origin: {origin}"] if origin else []), *lines)
    return read_request("\r\n".join(["GET /ws HTTP/1.1", f"Host: {host}", *asks, "", ""]).encode())


OPEN = RoutePlan(SERVICE, host="0.0.0.0")
NAMED = RoutePlan(SERVICE, host="0.0.0.0", hosts=("h",))
LOCAL = RoutePlan(SERVICE)
FOR_PAGES = RoutePlan(SERVICE, host="0.0.0.0", access=AccessRules(cors=CORS))
ANY_PAGE = RoutePlan(SERVICE, host="0.0.0.0", access=AccessRules(cors=CorsRule(("*",))))


@pytest.mark.parametrize(
    ("plan", "asked", "status"),
    [
        (LOCAL, websocket(host="localhost"), 0),
        (LOCAL, websocket("http://localhost:3000", host="localhost:8000"), 0),
        (LOCAL, websocket("https://evil.example", host="localhost"), 403),
        (LOCAL, websocket("null", host="localhost"), 403),
        (LOCAL, websocket("http://evil.example", host="evil.example"), 403),
        (NAMED, websocket("https://h:8443"), 0),
        (NAMED, websocket("https://evil.example"), 403),
        (NAMED, websocket("https://evil.example", host="evil.example"), 403),
        (OPEN, websocket(), 0),
        (OPEN, websocket("https://h"), 0),
        (OPEN, websocket("https://page.example", "X-Forwarded-Host: page.example"), 0),
        (OPEN, websocket("https://evil.example"), 403),
        (OPEN, websocket("https://h.evil.example"), 403),
        (FOR_PAGES, websocket("https://app.example.org"), 0),
        (FOR_PAGES, websocket("https://evil.example"), 403),
        (ANY_PAGE, websocket("https://evil.example"), 0),
    ],
)
def test_a_page_of_another_site_opens_no_websocket(plan: RoutePlan, asked: RequestHead, status: int) -> None:
    exposed = not plan.host.startswith("127.")
    door = make_admission(plan, lambda: 0.0, lambda: 0.0, exposed=exposed, before=None)
    found = door.admit(asked, b"p") if door is not None else admit_without_rules(asked)
    assert (found.status if isinstance(found, RequestRefusal) else 0) == status
    assert "cors.origins" in refused(found).reason or "FAIRWAY_HOSTS" in refused(found).reason if status else True


def test_a_websocket_needs_a_key_and_takes_from_its_rate(clocks: Clocks) -> None:
    door = admission(clocks, AccessRules(keys_required=True, keys=(replace(RULE, rate=1.0),)))
    assert refused(door.admit(websocket(), b"p")).status == 401
    let_in(door.admit(websocket("", f"Authorization: Bearer {KEY}"), b"p"))
    assert refused(door.admit(websocket("", f"Authorization: Bearer {KEY}"), b"p")).status == 429


def test_no_rules_cost_nothing() -> None:
    plan = RoutePlan(SERVICE, host="0.0.0.0")
    assert make_admission(plan, lambda: 0.0, lambda: 0.0, exposed=True, before=None) is None
    assert make_admission(RoutePlan(SERVICE), lambda: 0.0, lambda: 0.0, exposed=False, before=None) is not None
