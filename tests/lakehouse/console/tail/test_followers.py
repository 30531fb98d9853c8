"""Tests that following is limited, and ends with its page, without a broker."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from lakehouse.console.tail import followers as follow
from lakehouse.console.tail.followers import AT_ONCE, BUSY, FULL, MOST, SHOWN, Event, Followers
from lakehouse.console.tail.lines import Filter, Line
from pulsar_spark.errors import BrokerError


class Endless:
    """A source with more than a page shows. `notes` are said in turn, and then the last again."""

    def __init__(self, *notes: str) -> None:
        self.number = 0
        self.notes = [*notes] or [""]
        self.closed = threading.Event()

    def poll(self, most: int) -> tuple[list[Line], str]:
        lines = [
            Line(1.0, "message", str(n), "", "even" if n % 2 == 0 else "odd")
            for n in range(self.number, self.number + most)
        ]
        self.number += most
        return lines, self.notes.pop(0) if len(self.notes) > 1 else self.notes[0]

    def close(self) -> None:
        self.closed.set()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "TURN_SECONDS", 0.001)


def followed(
    source: Endless,
    wanted: str = "",
    enough: Callable[[list[Event]], bool] = lambda _: False,
    is_stopped: Callable[[], bool] = lambda: False,
) -> list[Event]:
    """The events of a page that is closed when there were enough."""

    async def read() -> list[Event]:
        found: list[Event] = []
        followers = Followers(is_stopped)
        events = followers.events(lambda: source, Filter.parse(wanted))
        async for event in events:
            found.append(event)
            if enough(found):
                break
        await events.aclose()  # type: ignore[attr-defined]
        assert followers.count == 0
        return found

    return asyncio.run(asyncio.wait_for(read(), 30))


def test_a_page_shows_only_so_many_lines_of_a_turn_and_in_all() -> None:
    source = Endless()
    first, *turns, end = followed(source)
    assert first == ("ready", None)
    assert all(len(turn["lines"]) == SHOWN for _, turn in turns)
    assert all(turn["left"] == follow.READ - SHOWN for _, turn in turns)
    assert sum(len(turn["lines"]) for _, turn in turns) == MOST
    newest = [line[2] for line in turns[0][1]["lines"]]
    assert newest == [str(n) for n in range(follow.READ - SHOWN, follow.READ)]
    assert end == ("end", FULL)
    assert source.closed.wait(5)


def test_only_what_fits_the_filter_is_shown_and_counted() -> None:
    found = followed(Endless(), "odd", lambda events: len(events) == 2)
    assert {line[4] for line in found[1][1]["lines"]} == {"odd"}
    assert found[1][1]["left"] == follow.READ // 2 - SHOWN


def test_a_note_is_said_once_until_it_changes() -> None:
    source = Endless("a", "a", "", "a", "b")
    found = followed(source, "nothing", lambda events: len(events) == 4)
    assert found == [("ready", None), ("note", "a"), ("note", "a"), ("note", "b")]


def test_a_closed_page_ends_its_thread_and_closes_its_source() -> None:
    source = Endless()
    followed(source, enough=lambda events: len(events) == 3)
    assert source.closed.wait(5)


def test_following_ends_with_the_console() -> None:
    stopped = threading.Event()
    source = Endless()

    def enough(events: list[Event]) -> bool:
        stopped.set()
        return False

    assert followed(source, "none", enough, stopped.is_set)[-1] == ("end", "")
    assert source.closed.is_set()


def test_only_a_few_pages_follow_something_at_a_time() -> None:
    async def read() -> Event:
        followers = Followers(lambda: False)
        open_ones = [followers.events(Endless, Filter()) for _ in range(AT_ONCE)]
        for each in open_ones:
            assert await anext(each) == ("ready", None)
        found = [event async for event in followers.events(Endless, Filter())]
        for each in open_ones:
            await each.aclose()  # type: ignore[attr-defined]
        assert followers.count == 0
        [event] = found
        return event

    assert asyncio.run(asyncio.wait_for(read(), 30)) == ("end", BUSY)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (BrokerError("No answer.", "Start it."), "No answer. Start it."),
        (OSError("x"), "OSError: x"),
    ],
)
def test_what_cannot_be_opened_says_why(error: Exception, says: str) -> None:
    async def read() -> list[Event]:
        def fail() -> Endless:
            raise error

        return [event async for event in Followers(lambda: False).events(fail, Filter())]

    assert asyncio.run(asyncio.wait_for(read(), 30)) == [("end", says)]
