"""What plans take, and what is forgotten of writes and plans, by the small files alone: no Spark reads or
writes rows here."""

from __future__ import annotations

import itertools
import random
import shutil
from typing import TYPE_CHECKING, cast

import pytest
from pyspark.errors import PySparkException

from relay.pipeline.cold import upkeep
from relay.pipeline.cold.plans import Plan, Plans, Share
from relay.pipeline.cold.store import BEGUN, COMMITS, SETTLED, VERSION_BITS, ColdStore, Write, name_of
from relay.pipeline.cold.taken import EVER, Consumed, Reach, undominated

if TYPE_CHECKING:
    from pathlib import Path

    from relay.pipeline.cold.table import Table
    from relay.pipeline.spark.files import Files

pytestmark = pytest.mark.slow


class Folder:
    """`Files` on a local disk, without Java."""

    def __init__(self, root: Path) -> None:
        self.path, self.root = root, str(root)

    def names(self, folder: str) -> list[str]:
        place = self.path / folder
        return sorted(each.name for each in place.iterdir()) if place.exists() else []

    def read(self, name: str) -> str | None:
        place = self.path / name
        return place.read_text() if place.exists() else None

    def publish(self, name: str, text: str) -> bool:
        place = self.path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists():
            return False
        place.write_text(text)
        return True

    def remove(self, name: str) -> bool:
        place = self.path / name
        there = place.exists()
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
        return there


class Rows:
    """A table whose rows are versions, topics and due times; a cancel has none."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str, int]] = []
        self.deleted: list[str] = []

    def version(self) -> int:
        return len(self.rows)

    def delete(self, condition: str) -> int:
        self.deleted.append(condition)
        return 1


class Store(ColdStore):
    """Writes and plans whose rows nobody looks at. Versions are days."""

    def __init__(self, path: Path) -> None:
        self.folder, self.held = Folder(path), Rows()
        self.files = cast("Files", self.folder)
        self.table = cast("Table", self.held)

    def writes(self, day: int, *rows: tuple[str, int], commits: bool = True, settles: bool = True) -> Write:
        """Write rows of topics and due times on that day."""
        version = self.version(day)
        write = Write(version, {topic: 1 for topic, _ in rows}, single=True)
        self.held.rows += [(version, topic, due) for topic, due in rows]
        if commits:
            topics = '{"topics": {"a": 1}, "single": true, "settled": false}'
            assert self.files.publish(f"{COMMITS}/{name_of(version)}", topics)
        if commits and settles:
            self.settle(write)
        return write

    def rests(self, until: int = EVER) -> set[tuple[int, str, int]]:
        """The rows that a sweep would take, by the rule: not taken by a plan that has seen them."""
        state = self.state()
        found = set()
        for version, topic, due in self.held.rows:
            number = state.known.numbers.get(version, 0)
            if due >= until or version in state.waiting(state.settled):
                continue
            if not any(number <= each.settled and due < each.until for each in state.done.taken.of(topic)):
                found.add((version, topic, due))
        return found

    def plan(self, until: int, *topics: str, left: tuple[str, ...] = ()) -> Plan:
        """The next plan, of some topics, or of all without some."""
        state = self.state()
        rows = {topic for _, topic, _ in self.rests(until)}
        chosen = rows & set(topics) if topics else rows - set(left)
        return Plan(
            state.done.number + 1,
            {topic: Share("", "epoch", 1) for topic in chosen},
            Reach(state.settled, until),
            500,
            0,
            state.known,
            state.done.taken,
            every=not topics,
            left=left,
        )

    def sweep(self, until: int, *topics: str, left: tuple[str, ...] = ()) -> set[tuple[int, str, int]]:
        """Take what is due; return it."""
        plan = self.plan(until, *topics, left=left)
        taken = {row for row in self.rests(until) if row[1] in plan.topics}
        if taken:
            assert self.plans.begin(plan)
            assert self.plans.end(plan, {})
        return taken


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_what_was_taken_is_not_taken_again(store: Store) -> None:
    """By how far a plan looked, and which writes it had seen settled: a late row of an hour that was swept
    still comes."""
    store.writes(1, ("a", 10), ("a", 30))
    assert len(store.sweep(20)) == 1
    assert store.sweep(20) == set()
    late = store.writes(2, ("a", 10))
    assert {row[0] for row in store.sweep(20)} == {late.version}
    assert {row[2] for row in store.sweep(40)} == {30}


def test_a_write_that_is_settled_behind_a_plan(store: Store) -> None:
    """Its version is older than what the plan took, its number is not."""
    slow = store.writes(1, ("a", 10), settles=False)
    store.writes(2, ("a", 10))
    assert len(store.sweep(20)) == 1
    upkeep.forget_writes(store, 0)
    store.settle(slow)
    assert {row[0] for row in store.sweep(20)} == {slow.version}


def test_a_topic_that_was_left_out(store: Store) -> None:
    """It keeps what it had, and its rows come with the next plan; then all topics share one pair again."""
    store.writes(1, ("a", 10), ("b", 10))
    assert {row[1] for row in store.sweep(20, left=("b",))} == {"a"}
    upkeep.forget_writes(store, 0)
    store.writes(2, ("c", 10))
    assert {row[1] for row in store.sweep(20)} == {"b", "c"}
    assert store.state().done.taken == Consumed((Reach(2, 20),))


def test_sweeps_that_look_less_far(store: Store) -> None:
    """Whatever sweeps of some topics or of all take, in whatever order they look how far, and whatever is
    forgotten between them: each row is taken once."""
    chance = random.Random(104)
    for _ in range(40):
        taken: list[tuple[int, str, int]] = []
        for day in range(1, 12):
            begun = chance.choice([True, False])
            rows = [(chance.choice("abc"), chance.randrange(100)) for _ in range(3)]
            store.writes(day, *rows, settles=begun)
            if chance.random() < 0.5:
                for write in store.state().unsettled:
                    store.settle(write)
            some = chance.choice([(), ("a",), ("a", "b")])
            left = () if some else chance.choice([(), ("c",)])
            taken += store.sweep(chance.randrange(100), *some, left=left)
            if chance.random() < 0.5:
                upkeep.forget_writes(store, 0)
                upkeep.forget_plans(store)
        for write in store.state().unsettled:
            store.settle(write)
        taken += store.sweep(EVER)
        assert len(taken) == len(set(taken)), "a row was taken twice"
        assert set(taken) == set(store.held.rows), "a row was lost"
        shutil.rmtree(store.folder.path)
        store.held.rows.clear()


def test_pairs_that_are_covered(store: Store) -> None:
    """One that another covers says nothing."""
    pairs = [Reach(*each) for each in itertools.product(range(4), range(4))]
    assert undominated(pairs) == (Reach(3, 3),)
    assert undominated([Reach(1, 9), Reach(2, 5), Reach(3, 5), Reach(1, 3)]) == (Reach(3, 5), Reach(1, 9))


def test_small_files_are_forgotten(store: Store) -> None:
    """Those of writes that a finished plan has seen settled, and of plans before the last."""
    store.writes(1, ("a", 10))
    store.sweep(20)
    open_write = store.writes(2, ("a", 30), settles=False)
    assert upkeep.forget_writes(store, 0) == 1
    assert [store.folder.names(each) for each in (BEGUN, COMMITS)] == [[name_of(open_write.version)]] * 2
    assert store.folder.names(SETTLED) == []
    store.settle(open_write)
    store.sweep(40)
    assert upkeep.forget_plans(store) == 1
    assert store.plans.numbers() == [2]


@pytest.mark.parametrize("steps", range(4))
def test_an_upkeep_that_is_killed(store: Store, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """After any of its steps nothing rests that was taken, and nothing is taken that was not."""
    store.writes(1, ("a", 10), ("a", 30))
    store.sweep(20)
    remove, done = store.folder.remove, iter(range(steps))

    def removed(name: str) -> bool:
        if next(done, None) is None:
            raise KeyboardInterrupt
        return remove(name)

    with monkeypatch.context() as patched:
        patched.setattr(store.folder, "remove", removed)
        if steps < 3:
            with pytest.raises(KeyboardInterrupt):
                upkeep.forget_writes(store, 0)
        else:
            upkeep.forget_writes(store, 0)
    assert {row[2] for row in store.rests()} == {30}
    assert not store.state().known.uncommitted, "it still replaces older rows"
    assert {row[2] for row in store.sweep(40)} == {30}
    upkeep.forget_writes(store, 0)
    assert [store.folder.names(each) for each in (BEGUN, COMMITS, SETTLED)] == [[], [], []]


def test_a_number_that_was_anothers(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The race: who settles has looked for the next number, then others settle, sweep, and forget the file of
    that number. Its own file of that number says nothing, so it takes another, and no row is lost."""
    slow = store.writes(1, ("a", 10), settles=False)
    publish, meanwhile = store.folder.publish, [True]

    def published(name: str, text: str) -> bool:
        if name.startswith(SETTLED) and meanwhile:
            meanwhile.clear()
            store.writes(2, ("a", 10))
            store.sweep(20)
            upkeep.forget_writes(store, 0)
        return publish(name, text)

    monkeypatch.setattr(store.folder, "publish", published)
    store.settle(slow)
    assert store.state().known.numbers[slow.version] == 2
    assert {row[0] for row in store.sweep(20)} == {slow.version}


def test_a_write_that_is_settled_twice(store: Store) -> None:
    """By its writer and by a sweep, which both looked before: it is taken once."""
    write = store.writes(1, ("a", 10))
    store.sweep(20)
    for number in (2, 3):
        store.folder.publish(f"{SETTLED}/{number:012d}.json", f'{{"version": {write.version}}}')
        assert store.sweep(20) == set()
        upkeep.forget_writes(store, 0)
    for day in (2, 3):
        later = store.writes(day, ("a", 10))
        assert {row[0] for row in store.sweep(20)} == {later.version}
        upkeep.forget_writes(store, 0)
    number = store.state().free
    store.folder.publish(f"{SETTLED}/{number:012d}.json", f'{{"version": {write.version}}}')
    assert store.sweep(20) == set(), "its version is forgotten by now"


def test_a_listing_that_lacks_a_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files came while a folder was listed, and the listing has the second alone: a plan counts to before
    the first."""
    first, second = (store.writes(day, ("a", 10)) for day in (1, 2))
    names = store.folder.names
    lacking = f"{1:012d}.json"
    with monkeypatch.context() as patched:
        patched.setattr(store.folder, "names", lambda folder: [n for n in names(folder) if n != lacking])
        assert store.state().settled == 0
        assert store.rests() == set()
    assert {row[0] for row in store.sweep(20)} == {first.version, second.version}


def test_a_state_that_is_read_while_a_plan_ends(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The race: a reader knows the last plan, then another ends, and files are forgotten. What the reader has
    by then is of two states, so it reads again."""
    store.writes(1, ("a", 10))
    store.sweep(20)
    store.writes(2, ("a", 30))
    names, meanwhile = store.folder.names, [True]

    def listed(folder: str) -> list[str]:
        if folder == SETTLED and meanwhile:
            meanwhile.clear()
            store.sweep(40)
            upkeep.forget_writes(store, 0)
        return names(folder)

    monkeypatch.setattr(store.folder, "names", listed)
    assert store.rests() == set(), "the second write was taken meanwhile"


@pytest.mark.parametrize("listed", [BEGUN, COMMITS])
def test_a_state_that_is_read_while_writes_are_forgotten(
    store: Store, monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    """The race: a reader has listed a folder, and then the upkeep of a sweep that is over removes what is in
    it. The write is committed all the same: otherwise the rows that it has replaced would come back."""
    write = store.writes(1, ("a", 10), ("a", 30))
    store.sweep(20)
    names, meanwhile = store.folder.names, [True]

    def names_before(folder: str) -> list[str]:
        found = names(folder)
        if folder == listed and meanwhile:
            meanwhile.clear()
            upkeep.forget_writes(store, 0)
        return found

    monkeypatch.setattr(store.folder, "names", names_before)
    assert write.version not in store.state().known.uncommitted
    assert not meanwhile


def test_cancels_are_forgotten_once_a_plan_has_seen_them(store: Store) -> None:
    """A plan has seen that a job began, and no more; then the job commits cancels that need no settling. The
    next plan must know of a newer write than the last one: it would not compare its rows otherwise."""
    store.writes(1, ("a", 10), ("a", 30))
    version = store.version(2)
    store.sweep(20)
    manifest = '{"topics": {"a": 1}, "single": true, "settled": true}'
    assert store.files.publish(f"{COMMITS}/{name_of(version)}", manifest)
    upkeep.forget_writes(store, 0)
    assert store.state().known.last == version
    store.sweep(40)
    upkeep.forget_writes(store, 0)
    assert store.folder.names(BEGUN) == []
    assert store.state().known.last == version


def test_a_write_without_a_manifest(store: Store) -> None:
    """Its rows count for nothing while it may still come; when it is old it is dead, and a writer that wakes
    up finds that it is too late."""
    dead = store.writes(1, ("a", 10), commits=False)
    assert store.rests() == set()
    long = upkeep.DEAD
    assert upkeep.forget_writes(store, long, keep=0) == 0
    assert upkeep.forget_writes(store, long + 2, keep=0) == 1
    assert store.held.deleted == [f"version in ({dead.version})"]
    assert not store.files.publish(f"{COMMITS}/{name_of(dead.version)}", "{}")
    store.writes(2, ("a", 10))
    store.sweep(20)
    upkeep.forget_writes(store, long + 2, keep=0)
    assert dead.version in store.state().known.uncommitted, "no later write is taken for it"


def test_a_dead_write_holds_up_no_retention(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never settled, but nothing of it counts; and where a merge of files was quicker than the deletion
    of its rows, the next death takes them along."""
    dead = store.writes(1, ("a", 10), commits=False)
    waits = store.writes(2, ("a", 10), settles=False)
    assert store.state().oldest == dead.version

    def raced(condition: str) -> int:
        raise PySparkException("[DELTA_CONCURRENT_DELETE_READ] raced")

    with monkeypatch.context() as patched:
        patched.setattr(store.held, "delete", raced)
        assert upkeep.forget_writes(store, upkeep.DEAD + 2, keep=0) == 1
    assert store.state().oldest == waits.version
    store.settle(waits)
    assert store.state().oldest == EVER
    other = store.writes(3, ("a", 10), commits=False)
    upkeep.forget_writes(store, upkeep.DEAD + 4, keep=0)
    assert store.held.deleted == [f"version in ({dead.version},{other.version})"]


def test_versions_are_nobody_elses(store: Store) -> None:
    """Also where clocks step back, or two writes begin at once, and when all small files are forgotten."""
    one, other = store.writes(5, ("a", 10)), store.writes(1, ("a", 10))
    assert other.version > one.version
    store.sweep(20)
    upkeep.forget_writes(store, 0)
    assert store.version(1) > other.version
    assert one.version >> VERSION_BITS == 5


@pytest.mark.parametrize("draft", [".{}.ff", "{}.ff"])
def test_drafts_are_no_files(store: Store, draft: str) -> None:
    """A writer that was killed before it gave one its name, on a local disk or on HDFS."""
    for folder, name in ((BEGUN, name_of(1)), (COMMITS, name_of(1)), (SETTLED, f"{1:012d}.json")):
        store.files.publish(f"{folder}/{draft.format(name)}", "{}")
    state = store.state()
    assert (state.settled, state.known.begun) == (0, frozenset())


@pytest.mark.parametrize(
    "topic", ["a/b %", "定时器" * 28, "x" * 256, "/" * 256, "+", ".", "topic=a", "everywhere"]
)
def test_plans_of_any_topic(store: Store, topic: str) -> None:
    """They name it, and what they took of it, as it is."""
    mine = Plans(store.files)
    plan = Plan(1, {topic: Share("", "epoch", 1)}, Reach(1, 2), 500, 0)
    assert mine.begin(plan)
    assert mine.plan(1) == plan
    assert mine.end(plan, {})
    done = mine.done(1)
    assert done is not None
    assert done.taken.of(topic) == (Reach(1, 2),)
    assert done.taken.of("another") == ()


def test_a_plan_ends_once(store: Store) -> None:
    """Whoever is first says of which topics it has taken its rows."""
    store.writes(1, ("a", 10), ("b", 10))
    plan = store.plan(20)
    assert store.plans.begin(plan)
    assert store.plans.end(plan, {}, without=("b",))
    assert not store.plans.end(plan, {})
    assert {row[1] for row in store.sweep(20)} == {"b"}


def test_a_plan_that_was_given_up(store: Store) -> None:
    """It took nothing; and it keeps what was taken before it."""
    store.writes(1, ("a", 10), ("a", 30))
    store.sweep(20)
    store.plans.begin(store.plan(40))
    assert store.plans.abandon(2)
    upkeep.forget_plans(store)
    upkeep.forget_writes(store, 0)
    assert {row[2] for row in store.rests()} == {30}


def test_a_plan_that_is_given_up_when_it_is_forgotten(store: Store) -> None:
    """By a driver that slept while others finished this plan and the next."""
    for day in (1, 2, 3):
        store.writes(day, ("a", 10))
        store.sweep(20)
    upkeep.forget_plans(store)
    assert not store.plans.abandon(2)
    assert store.plans.numbers() == [3]
