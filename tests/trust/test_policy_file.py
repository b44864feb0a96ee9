"""`policy.yaml`: what is refused, and how a changed file comes into force."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.api.access import Access
from relay.core.errors import Denied
from relay.core.trust.principals import Principal, caller
from relay.core.trust.verbs import AccessVerb
from relay.trust.files import BadFile, Watch
from relay.trust.policy_file import PolicyFile, parse, read_policy

GOOD = """\
rules:
  - name: shop
    principals: ["spiffe://example.org/ns/shop/*"]
    topics: [orders, "orders-*"]
    verbs: [schedule, deliver]
  - principals: ["token:ops"]
    topics: ["*"]
    verbs: [read, operate]
"""
RULE = "rules:\n  - principals: [token:a]\n    topics: [t]\n    verbs: [read]\n"


def problems(text: str) -> list[str]:
    return [str(each) for each in parse(text)[1]]


def test_a_policy_is_read(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(GOOD)
    policy = read_policy(file)
    assert [rule.name for rule in policy.rules] == ["shop", "rule 2"]
    assert policy.decide("spiffe://example.org/ns/shop/a", AccessVerb.DELIVER, "orders-eu").rule == "shop"
    assert policy.decide("token:ops", AccessVerb.OPERATE, "any").rule == "rule 2"
    assert parse("rules: []")[0].rules == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1: rules: is missing"),
        ("# nothing", "line 1: rules: is missing"),
        ("[]", "line 1: rules: must be a mapping"),
        ("rules: {}", "line 1: rules: must be a list"),
        ("rule: []", "line 1: rule: is not known here; did you mean rules?"),
        ("rules:\n  - [", "line 2: rules: the text from here on is not valid YAML"),
        ("rules: !!python/name:os.system x", "line 1: rules: must be a list"),
        ("rules: [7]", "line 1: rules[1]: must be a mapping"),
        (RULE.replace("topics", "topic"), "line 3: rules[1].topic: is not known here; did you mean topics?"),
        (RULE.replace("verbs: [read]", ""), "line 2: rules[1].verbs: is missing"),
        (RULE.replace("[read]", "read"), "line 4: rules[1].verbs: must be a list"),
        (RULE.replace("[read]", "[]"), "line 4: rules[1].verbs: must be a list"),
        (RULE.replace("[read]", "[Read]"), "line 4: rules[1].verbs[1]: 'Read' is not a verb; write some of"),
        (RULE.replace("[t]", "[7]"), "line 3: rules[1].topics[1]: must be text; put it in quotes"),
        (RULE.replace("[t]", "[a#1]"), "line 3: rules[1].topics[1]: 'a#1' can't match a topic"),
        (RULE.replace("token:a", "ops"), "line 2: rules[1].principals[1]: 'ops' begins with no kind"),
        (RULE.replace("token:a", "'spiffe://x*'"), "line 2: rules[1].principals[1]: 'spiffe://x*' has a *"),
        (RULE + "    verbs: [read]\n", "line 5: rules[1].verbs: comes twice"),
        (
            RULE + RULE[7:].replace("- p", "- name: rule 1\n    p"),
            "line 5: rules[2].name: is that of the rule in line 2",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, problem: str) -> None:
    (said,) = problems(text)
    assert said.startswith(problem)


def test_bounds_are_read() -> None:
    policy, wrong = parse(
        "rules: []\nbounds:\n"
        "  - {name: batch, principals: ['token:batch-*'], max_streams: 0, bytes_per_second: 1_000_000.5}\n"
        "  - {principals: ['*', anonymous], max_calls: 5, calls_per_second: 0.5, burst_seconds: 10}\n"
    )
    assert not wrong
    batch, rest = policy.bounds
    assert (batch.name, batch.max_streams, batch.bytes_per_second) == ("batch", 0, 1_000_000.5)
    assert (rest.name, rest.max_calls, rest.calls_per_second, rest.burst_seconds) == ("bound 2", 5, 0.5, 10.0)
    assert (rest.max_streams, rest.bytes_per_second, batch.burst_seconds) == (None, None, 1.0)
    assert policy.bound("token:batch-7") is batch
    assert policy.bound("token:x") is policy.bound("anonymous") is rest
    assert parse("rules: []\nbounds: []")[0].bound("anonymous") is None


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("{max_calls: 1}", "bounds[1].principals: is missing"),
        ("{principals: ['*']}", "bounds[1]: bounds nothing; give some of max_streams, max_calls, calls_per"),
        ("{principals: ['*'], calls: 1}", "bounds[1].calls: is not known here"),
        (
            "{principals: ['*'], burst_seconds: 1, max_calls: 1}",
            "bounds[1].burst_seconds: has no effect without",
        ),
        ("{principals: ['*'], max_calls: 1.5}", "bounds[1].max_calls: must be a whole number"),
        (
            "{principals: ['*'], max_calls: -1}",
            "bounds[1].max_calls: must be a number from 0 to 1,000,000,000",
        ),
        ("{principals: ['*'], max_calls: 010}", "bounds[1].max_calls: must be a number from 0"),
        ("{principals: ['*'], max_calls: '1'}", "bounds[1].max_calls: must be a number from 0"),
        ("{principals: ['*'], max_calls: [1]}", "bounds[1].max_calls: must be a number from 0"),
        ("{principals: ['*'], max_calls: .inf}", "bounds[1].max_calls: must be a number from 0"),
        (
            "{principals: ['*'], bytes_per_second: 1MiB}",
            "bounds[1].bytes_per_second: must be a number from 0.001",
        ),
        (
            "{principals: ['*'], calls_per_second: 0}",
            "bounds[1].calls_per_second: must be a number from 0.001",
        ),
        ("{principals: [ops], max_calls: 1}", "bounds[1].principals[1]: 'ops' begins with no kind"),
        (
            "{name: a, principals: ['*'], max_calls: 1}, {name: a, principals: ['*'], max_calls: 1}",
            "bounds[2].name: is that of the bound in line 2, too",
        ),
    ],
)
def test_what_is_wrong_with_a_bound_is_said(entry: str, problem: str) -> None:
    """The rules beside it are right, and a bad bound still refuses the whole."""
    (said,) = problems(f"rules: []\nbounds: [{entry}]\n")
    assert said.startswith(f"line 2: {problem}")


def test_all_problems_are_said_at_once() -> None:
    assert len(problems(RULE.replace("read", "reed") + RULE[7:].replace("token:a", "a"))) == 2


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "a: &a [*a]\nrules: *a", "rules: &a\n  - *a", "\x00", "rules: [" + "{}," * 2_000 + "]"],
)
def test_hostile_text_is_refused(text: str) -> None:
    assert problems(text)


def test_a_changed_file_comes_into_force_and_a_bad_one_does_not(tmp_path: Path) -> None:
    """The one before stays in force, the file counts as stale until it is mended; the start is refused."""
    path, access, told = tmp_path / "policy.yaml", Access(), []
    file = PolicyFile(path, access.use)
    watch = Watch(lambda setting, taken: told.append((setting, taken)))
    with pytest.raises(BadFile, match=r"policy_file: .*policy.yaml can't be read"):
        watch.add(file.source)
    path.write_text(RULE)
    watch.add(file.source)
    caller.set(Principal("token:a"))

    def may(verb: AccessVerb) -> bool:
        watch.look()
        try:
            access.require(verb, "t")
        except Denied as denied:
            assert str(denied) == f"the policy does not give token:a the verb {verb} on topic 't'"  # noqa: PT017
            return False
        return True

    assert may(AccessVerb.READ)
    assert not may(AccessVerb.SCHEDULE)
    path.write_text(RULE.replace("[read]", "[schedule]"))
    assert may(AccessVerb.SCHEDULE)
    assert not may(AccessVerb.READ)
    path.write_text(RULE.replace("[read]", "[reed]"))
    assert may(AccessVerb.SCHEDULE)
    assert file.stale
    path.unlink()
    assert may(AccessVerb.SCHEDULE)
    path.write_text(RULE)
    assert may(AccessVerb.READ)
    assert not file.stale
    assert told == [("policy_file", taken) for taken in (True, False, False, True)]
