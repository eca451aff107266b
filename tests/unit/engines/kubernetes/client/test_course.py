from fairway.engines.kubernetes.client import errors
from fairway.engines.kubernetes.client.course import Ask, Course

GONE, LATER = errors.Gone("too old"), errors.Unavailable("later")


def test_everything_first_then_from_there():
    course = Course()
    assert course.ask is Ask.WATCH_LIST
    course.reached("7")
    assert (course.ask, course.version) == (Ask.RESUME, "7")
    course.ended(empty=False)
    assert (course.ask, course.failures) == (Ask.RESUME, 0)


def test_a_server_without_watch_lists():
    for refusal in (errors.BadRequest("no"), errors.Invalid("no"), errors.Forbidden("no")):
        course = Course()
        assert course.failed(refusal)
        assert course.ask is Ask.LIST
        course.reached("7")
        course.failed(GONE)
        assert course.ask is Ask.LIST


def test_a_refusal_of_the_list_itself_is_told():
    course = Course()
    assert course.failed(errors.Forbidden("no"))
    assert not course.failed(errors.Forbidden("no"))
    assert course.failures == 2


def test_too_old_begins_anew_at_once_but_not_in_circles():
    course = Course()
    course.reached("7")
    assert course.failed(GONE)
    assert course.ask is Ask.WATCH_LIST
    assert not course.failed(GONE)
    course.reached("9")
    assert course.failures == 0


def test_a_failure_keeps_the_place():
    course = Course()
    course.reached("7")
    assert not course.failed(LATER)
    assert (course.ask, course.version, course.failures) == (Ask.RESUME, "7", 1)


def test_a_watch_that_brings_nothing_counts():
    course = Course()
    course.reached("7")
    course.ended(empty=True)
    course.ended(empty=True)
    assert course.failures == 2
