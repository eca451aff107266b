from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.watch_state import WatchRequest, WatchState

GONE, LATER = errors.Gone("too old"), errors.Unavailable("later")


def test_everything_first_then_from_there():
    course = WatchState()
    assert course.ask is WatchRequest.WATCH_LIST
    course.reached("7")
    assert (course.ask, course.version) == (WatchRequest.RESUME, "7")
    course.ended(empty=False)
    assert (course.ask, course.failures) == (WatchRequest.RESUME, 0)


def test_a_server_without_watch_lists():
    for refusal in (errors.BadRequest("no"), errors.Invalid("no"), errors.Forbidden("no")):
        course = WatchState()
        assert course.failed(refusal)
        assert course.ask is WatchRequest.LIST
        course.reached("7")
        course.failed(GONE)
        assert course.ask is WatchRequest.LIST


def test_a_refusal_of_the_list_itself_is_told():
    course = WatchState()
    assert course.failed(errors.Forbidden("no"))
    assert not course.failed(errors.Forbidden("no"))
    assert course.failures == 2


def test_too_old_begins_anew_at_once_but_not_in_circles():
    course = WatchState()
    course.reached("7")
    assert course.failed(GONE)
    assert course.ask is WatchRequest.WATCH_LIST
    assert not course.failed(GONE)
    course.reached("9")
    assert course.failures == 0


def test_a_failure_keeps_the_place():
    course = WatchState()
    course.reached("7")
    assert not course.failed(LATER)
    assert (course.ask, course.version, course.failures) == (WatchRequest.RESUME, "7", 1)


def test_a_watch_that_brings_nothing_counts():
    course = WatchState()
    course.reached("7")
    course.ended(empty=True)
    course.ended(empty=True)
    assert course.failures == 2
