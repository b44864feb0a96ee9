"""From rows to the page: medians and spreads, targets, what is kept of an earlier run."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench import targets
from bench.__main__ import PAGES, parse
from bench.harness.quantiles import quantiles
from bench.harness.rows import Row
from bench.measures import MEASURES, dispatch, drain, lateness
from bench.report import headline
from bench.report.publish import RESULTS, publish
from bench.report.results import Results, read

ROOT = Path(__file__).resolve().parents[2]


def results(*runs: dict[str, float]) -> Results:
    """Of drains."""
    made = Results({"machine": "some"})
    for run, figures in enumerate(runs):
        for name, value in figures.items():
            made.add(run, Row("drain", name, value, "timers/s"))
    return made


def test_quantiles_are_values_that_were_measured() -> None:
    found = quantiles([float(n) for n in range(1, 1001)])
    assert found == {"p50": 500.0, "p99": 990.0, "p99.9": 999.0, "max": 1000.0}
    assert set(quantiles([7.0]).values()) == {7.0}


def test_a_target_is_held_against_the_median_of_ratios_within_runs() -> None:
    """0.6, 0.4 and 0.55 are 0.55 in the middle; the ratio of the medians would be 0.44."""
    runs = [
        {drain.STREAM: 60.0, drain.CEILING: 100.0},
        {drain.STREAM: 40.0, drain.CEILING: 100.0},
        {drain.STREAM: 11.0, drain.CEILING: 20.0},
    ]
    outcome = targets.outcomes(results(*runs).runs())[0]
    assert outcome.target.name == "drain by stream, of its ceiling"
    assert outcome.values == pytest.approx((0.6, 0.4, 0.55))
    assert outcome.median == pytest.approx(0.55)
    assert outcome.word == "reached"
    slow = targets.outcomes(results({drain.STREAM: 49.0, drain.CEILING: 100.0}).runs())[0]
    assert slow.word == "**missed**"
    assert targets.outcomes(results({drain.STREAM: 1.0}).runs())[0].word == "not measured"


def test_a_missed_target_stands_on_the_page_with_its_figure(tmp_path: Path) -> None:
    publish(results({drain.STREAM: 49_000.0, drain.CEILING: 100_000.0}), tmp_path)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| drain by stream, of its ceiling | ≥ 0.5 | 0.49 | 0.49 to 0.49 | **missed** |" in page
    assert f"| {drain.STREAM} | 49,000 | 49,000 to 49,000 | timers/s |" in page
    assert "![drain](drain.svg)" in page
    assert (tmp_path / "drain.svg").read_text(encoding="utf-8").count("<svg") == 1


@pytest.mark.slow
def test_measures_that_were_left_out_stay_as_they_were(tmp_path: Path) -> None:
    first = results({drain.STREAM: 1_000.0, drain.PUSH: 10.0})
    first.add(0, Row("lateness", lateness.IDLE, 2.0, "ms", "p99"))
    publish(first, tmp_path)
    publish(results({drain.STREAM: 2_000.0}, {drain.STREAM: 4_000.0}), tmp_path)
    kept = read(tmp_path / "results.json")
    assert kept.median("drain", drain.STREAM) == 3_000.0
    assert kept.median("drain", drain.PUSH) is None, "of a measure that ran anew nothing old is left"
    assert kept.median("lateness", lateness.IDLE, "p99") == 2.0


@pytest.mark.slow
def test_what_ran_apart_says_so(tmp_path: Path) -> None:
    """A quick run of one measure on a busy machine is not what the others were measured on."""
    first = results({drain.STREAM: 1_000.0})
    first.add(0, Row("dispatch", dispatch.ONE, 2.0, "deliveries/s"))
    first.add(0, Row("lateness", lateness.IDLE, 2.0, "ms", "p99"))
    publish(first, tmp_path)
    second = Results({"machine": "another"})
    second.add(0, Row("dispatch", dispatch.ONE, 7.0, "deliveries/s"))
    publish(second, tmp_path)
    third = Results({"machine": "a third"})
    third.add(0, Row("relays", "some", 7.0, "times"))
    publish(third, tmp_path)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| machine | some |" in page
    assert page.count("Measured apart: ") == 2
    assert f"| {dispatch.ONE} | 7 | 7 to 7 | deliveries/s |\n\nMeasured apart: machine another." in page
    assert read(tmp_path / "results.json").measures() == ["drain", "dispatch", "lateness", "relays"]
    whole = results({drain.STREAM: 1_000.0})
    for measure in ("dispatch", "lateness", "relays"):
        whole.add(0, Row(measure, "some", 1.0, "times"))
    publish(whole, tmp_path)
    assert "Measured apart" not in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_a_figure_that_one_run_could_not_take(tmp_path: Path) -> None:
    made = results({drain.STREAM: 1_000.0}, {drain.STREAM: 2_000.0})
    made.add(1, Row("peers", "some, best tuning", None, "timers/s", note="left out: nobody has it"))
    publish(made, tmp_path)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| some, best tuning | – | not measured | timers/s |" in page
    assert "- some, best tuning: left out: nobody has it." in page


def test_the_headline_shows_what_was_measured(tmp_path: Path) -> None:
    publish(results({drain.STREAM: 50_000.0, drain.CEILING: 80_000.0}), tmp_path)
    drawn = (tmp_path / headline.PICTURE).read_text(encoding="utf-8")
    words = [text.text for text in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert "Relay, stream" in words
    assert "50,000" in words
    assert "BullMQ" not in words, "nothing stands there that was not measured"


@pytest.mark.checkout
def test_the_front_page_shows_the_figures_of_the_page() -> None:
    """The picture is that of the stored results, and the README's words for it have its figures."""
    stored = read(PAGES / RESULTS)
    assert (PAGES / headline.PICTURE).read_text(encoding="utf-8") == headline.picture(stored)
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    words = re.findall(r"!\[([^\]]*)\]\(docs/performance/headline\.svg\)", page)
    rate, late = stored.median("drain", drain.STREAM, ""), stored.median("lateness", lateness.IDLE, "p50")
    assert rate is not None
    assert late is not None
    drained = f"Relay drains {rate:,.0f} due timers a second by stream"
    assert words == [f"{drained}, and is {late:.1f} ms late at the median on an idle queue"]


def test_options() -> None:
    given = parse(["--only", "drain,lateness", "--runs", "2", "--quick"])
    assert (given.only, given.runs, given.form) == (["drain", "lateness"], 2, "quick")
    assert (parse([]).only, parse([]).form) == (list(MEASURES), "default")


def test_a_measure_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--only", "drane"])
    assert f"there is no 'drane'; there are {', '.join(MEASURES)}" in capsys.readouterr().err
