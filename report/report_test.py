# SPDX-License-Identifier: Apache-2.0
"""The page "At a glance" says what the runs say: each number is found again, a wrong one is found out, and nothing is fetched."""

import csv
import json
import re

import pytest

from bench import series
from bench.histogram import Histogram
from report import __main__ as report
from report import experiments, published
from report.check import problems_of
from report.published import PUBLISHED, ReportError
from report.sections import SECTIONS
from report.tables import PAGES, wrong_rows


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Of published/ alone: what lies in results/ is another machine's."""
    return published.load(results=tmp_path_factory.mktemp("results"), published=PUBLISHED)


@pytest.fixture(scope="module")
def page(runs):
    return report.build(runs)


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_of_a_page_are_published_or_say_that_they_are_not(runs, page):
    assert wrong_rows((published.ROOT / page).read_text(encoding="utf-8"), runs) == []


def test_every_changed_digit_of_a_published_table_is_found_out(runs):
    text = (published.ROOT / "README.md").read_text(encoding="utf-8")
    tables = re.findall(r"<!-- published: \S+ -->\n((?:\|.*\n)+)", text)
    assert len(tables) == 2
    for digit in ("8,186", "10.2", "904", "1002", "3.5 %", "0.13"):
        planted = text.replace(f" {digit}", f" {digit.replace(digit[0], str((int(digit[0]) + 1) % 10), 1)}", 1)
        assert planted != text and len(wrong_rows(planted, runs)) == 1, digit


def test_a_changed_digit_of_published_prose_is_found_out(runs):
    for page in ("README.md", "docs/figures.md"):
        text = (published.ROOT / page).read_text(encoding="utf-8")
        cited = re.findall(r"(<!-- published: [^/\s]+/\S+ -->)(\d)", text)
        assert cited, page
        for marker, digit in cited:
            planted = text.replace(f"{marker}{digit}", f"{marker}{(int(digit) + 1) % 10}", 1)
            assert len(wrong_rows(planted, runs)) == 1, marker


def test_a_table_without_a_run_is_found_out(runs):
    table = "# A\n\n## B\n\n| a | b |\n|---|---|\n| x | 4.5 |\n"
    assert len(wrong_rows(table, runs)) == 1
    assert wrong_rows(table.replace("## B\n", "## B\n\nNot run on this build.\n"), runs) == []


def test_every_section_has_a_run_in_the_repository(runs):
    assert {section.name for section in SECTIONS} <= runs.keys()


def test_every_number_of_the_page_is_found_in_its_run(runs, page):
    assert problems_of(page, runs) == []
    assert page.count("<data ") > 200
    assert page.count("data-label=") > 10


@pytest.mark.parametrize("pattern, wrong", [
    (r"(<data value=\"\d[^>]*>)[\d.,]+(</data>)", r"\g<1>987,654\2"),        # another number shown
    (r"<data value=\"[\d.]+\"", '<data value="987654"'),                      # another value claimed
    (r"data-path=\"/rows/0/client_errors", 'data-path="/rows/2/client_errors'),  # another row's
    (r"(data-label=\"[^\"]+\">\s*<text[^>]*>)[^<]+", r"\g<1>987"),            # a bar's label
    (r"<h2>", "<h2>42 times "),                                               # of no run at all
    (r"(<data value=\"\d[^>]*>)([\d.,]+)(</data>)", r"\2"),
])
def test_a_wrong_number_is_found_out(runs, page, pattern, wrong):
    planted, count = re.subn(pattern, wrong, page, count=1)
    assert count == 1
    assert len(problems_of(planted, runs)) == 1


@pytest.mark.parametrize("planted", [
    '<img src="https://example.org/a.png">', '<link rel="stylesheet" href="a.css">', "<script>1</script>",
    '<svg><use href="https://example.org/a.svg#b"/></svg>', '<p style="background: url(https://example.org/a.png)">'])
def test_what_would_be_fetched_is_found_out(runs, page, planted):
    assert problems_of(page.replace("</main>", planted + "</main>"), runs)


@pytest.mark.parametrize("name", sorted(path.name for path in PUBLISHED.iterdir() if path.name in experiments.DECLARED))
def test_what_is_published_is_judged_again_without_root_and_without_a_change(name, capsys):
    before = (PUBLISHED / name / "summary.json").read_bytes()
    assert experiments.main([str(PUBLISHED / name)]) in (0, 1)
    assert "must show:" in capsys.readouterr().out and (PUBLISHED / name / "summary.json").read_bytes() == before


def test_a_link_in_the_text_fetches_nothing(runs, page):
    assert problems_of(page.replace("</main>", '<a href="https://example.org/">there</a></main>'), runs) == []


def test_a_section_without_a_run_names_its_command():
    text = report.build({})
    for section in SECTIONS:
        assert f"<code>{section.command}</code>" in text


def test_ids_are_unique(page):
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_what_is_published_names_no_path_and_is_small():
    for folder in PUBLISHED.iterdir():
        if folder.is_dir():
            assert sum(path.stat().st_size for path in folder.iterdir()) < 250_000, folder
            assert not re.search(r"\"/(?:home|root|tmp|work)/", (folder / "summary.json").read_text(encoding="ascii"))


# -- runs made up for the purpose

def summary(name, rows, finished="2026-01-02T03:04:05+00:00", **manifest):
    return {"name": name, "rows": rows, "checks": [],
            "manifest": {"kernel": "6.1.0", "cpu": "a processor", "cpus": 2, "commit": "c" * 40, "uncommitted_changes": False,
                         "finished": finished, "configs": {}, "changed_meanwhile": [], **manifest}}


def write(folder, content, **raw):
    (folder / "raw").mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(content), encoding="ascii")
    for name, each in raw.items():
        (folder / "raw" / f"{name}.json").write_text(json.dumps(each), encoding="ascii")


def heartbeat(folder, values_us, **manifest):
    latency = Histogram()
    for value in values_us:
        latency.record(value * 1000)
    latency.record(1_000_000_000)
    write(folder, summary("heartbeat", [{"server": "xdp", "load": "idle"}], **manifest),
          a={"load": "idle", "server": "xdp", "client": {"histograms": {"latency": latency.to_json()}}})


def test_a_kept_run_says_what_its_raw_data_say(tmp_path):
    heartbeat(tmp_path / "results" / "heartbeat", range(1, 100))
    published.keep("heartbeat", tmp_path / "results", tmp_path / "published")
    run = published.load(tmp_path / "nothing", tmp_path / "published")["heartbeat"]
    figures = run.form["figures"]["idle-xdp"]
    # 99 answers of 1 to 99 us, and one that was lost and has waited a second.
    assert figures["n"] == 100
    assert figures["min"] == 1
    assert figures["avg"] == pytest.approx((99 * 100 / 2 + 1e6) / 100)
    assert figures["p50"] == pytest.approx(50, rel=0.01)
    assert figures["p95"] == pytest.approx(95, rel=0.01)
    assert figures["max"] == 1e6
    shares = [share for _, share in run.form["series"]["idle-xdp"]["tail_us"]]
    assert shares == sorted(shares, reverse=True) and shares[-1] == 0


def test_a_slot_has_the_median_the_longest_and_the_unanswered():
    assert series.slots_of([(0.01, 1.0), (0.02, 3.0), (0.04, 2.0), (0.051, None)], 5000.0) == [
        [0.0, 2.0, 3.0, 0], [0.05, 5000.0, 5000.0, 1]]


def test_the_demo_of_two_operations(tmp_path):
    folder = tmp_path / "demo"
    write(folder, summary("demo", [{"system": "hedgerow"}]),
          **{"hedgerow-01": {"start_ns": 1_000_000_000, "kills": [{"begin_ns": 1_500_000_000, "end_ns": 2_000_000_000}]}})
    with open(folder / "raw" / "hedgerow.csv", "w", encoding="ascii", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["kind", "intended_ns", "ended_ns", "ending"])
        lines.writerow(["i", 1_120_000_000, 1_122_000_000, "ok"])
        lines.writerow(["g", 1_620_000_000, 6_620_000_000, "timeout"])
    form = published.published_form(folder)
    assert form["series"]["hedgerow"]["kills_s"] == [[0.5, 1.0]]
    assert form["series"]["hedgerow"]["slots"] == [[0.1, 2.0, 2.0, 0], [0.6, 5000.0, 5000.0, 1]]
    assert (form["figures"]["hedgerow"]["n"], form["figures"]["hedgerow"]["lost"]) == (2, 1)
    assert form["figures"]["hedgerow"]["max_ms"] == 5000


@pytest.mark.parametrize("newer", ["results", "published"])
def test_the_newer_run_wins_and_is_named(tmp_path, newer):
    older = {"results": "published", "published": "results"}[newer]
    for source, finished in ((newer, "2026-02-02T00:00:00+00:00"), (older, "2026-01-01T00:00:00+00:00")):
        heartbeat(tmp_path / "made", [10 if source == newer else 20], finished=finished)
        (tmp_path / "made").rename(tmp_path / "heartbeat")
        if source == "published":
            published.keep("heartbeat", tmp_path, tmp_path / "published")
            for path in sorted((tmp_path / "heartbeat").rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            (tmp_path / "heartbeat").rmdir()
        else:
            (tmp_path / "results").mkdir()
            (tmp_path / "heartbeat").rename(tmp_path / "results" / "heartbeat")
    run = published.load(tmp_path / "results", tmp_path / "published")["heartbeat"]
    assert run.source.endswith(f"{newer}/heartbeat")
    assert run.form["figures"]["idle-xdp"]["min"] == 10


@pytest.mark.parametrize("spoil, message", [
    (lambda folder: (folder / "summary.json").write_text("{"), "cannot be read"),
    (lambda folder: (folder / "summary.json").write_text('{"rows": []}'), "not whole.*manifest"),
    (lambda folder: (folder / "raw" / "a.json").unlink(), "not whole.*run the experiment again"),
])
def test_a_broken_run_is_named_with_what_to_do(tmp_path, spoil, message):
    heartbeat(tmp_path / "heartbeat", [1])
    spoil(tmp_path / "heartbeat")
    with pytest.raises(ReportError, match=message):
        published.load(tmp_path, tmp_path / "nothing")


def test_a_run_that_is_made_again_meanwhile_gives_way_to_the_kept_one(tmp_path):
    heartbeat(tmp_path / "heartbeat", [1])
    published.keep("heartbeat", tmp_path, tmp_path / "published")
    heartbeat(tmp_path / "heartbeat", [2], finished="2026-09-09T00:00:00+00:00")
    (tmp_path / "heartbeat" / "raw" / "a.json").unlink()
    said = []
    runs = published.load(tmp_path, tmp_path / "published", warn=said.append)
    assert runs["heartbeat"].source.endswith("published/heartbeat")
    assert len(said) == 1 and "not whole" in str(said[0])


def test_a_run_with_variants_of_its_own_is_shown_as_far_as_it_goes(tmp_path):
    keys = ("put_per_s", "p50_us", "p99_us", "leader_cpu_us_per_op", "cluster_cpu_us_per_op", "runs")
    rows = [{"replicas": 3, "clients": 64, "variant": variant, "rate_per_s": rate, **dict.fromkeys(keys, value)}
            for variant, rate, value in (("all", None, 123.0), ("no-append", None, 456.0), ("all", 1000.0, 789.0))]
    write(tmp_path / "offload", summary("offload", rows))
    runs = published.load(tmp_path, tmp_path / "nothing")
    text = report.build(runs)
    assert ">123</data>" in text and ">456</data>" in text and "all on but append" in text and ">789</data>" not in text


def test_a_system_without_a_label_is_shown_by_its_own_name(tmp_path):
    latency = Histogram()
    latency.record(1_000_000)
    times = dict.fromkeys(("p50_ms", "p99_ms", "p999_ms", "max_ms", "extra_load"), 1.0)
    modes = ("baseline", "at-once", "a-newer-mode")
    write(tmp_path / "raft-hedge",
          summary("raft-hedge", [{"variant": "stall", "mode": mode, "operation": "get", "n": 1, "lost": 0, **times} for mode in modes]),
          **{mode: {"variant": "stall", "mode": mode, "operations": {"get": {"latency": latency.to_json()}}} for mode in modes})
    cost = {"system": "a-newer-store", "mode": "memory", "outage_p50_ms": 1.0, "outage_max_ms": 1.0, "client_errors": 0, "acked_lost": 0}
    write(tmp_path / "chaos-leader-kill", summary("chaos-leader-kill", [cost]),
          a={"system": "a-newer-store", "mode": "memory", "costs": [{"unavailable_ms": 1.0}]})
    text = report.build(published.load(tmp_path, tmp_path / "nothing"))
    for name in ("Hedgerow, at once while idle", "a-newer-mode", "a-newer-store"):
        assert f"</svg>{name}</li>" in text and text.count(name) >= 2, "in the legend and in the table"


def test_keeping_a_run_that_is_not_there_names_those_that_are(tmp_path):
    heartbeat(tmp_path / "heartbeat", [1])
    with pytest.raises(ReportError, match="runs that are there: heartbeat"):
        published.keep("hartbeat", tmp_path, tmp_path / "published")


@pytest.mark.parametrize("manifest", [{"changed_meanwhile": ["commit"]}, {"changed_meanwhile": ["hedgerowd"]}, {"uncommitted_changes": True}])
def test_a_run_of_more_than_one_build_is_not_published(tmp_path, manifest):
    heartbeat(tmp_path / "heartbeat", [1], **manifest)
    with pytest.raises(ReportError, match="commit|hedgerowd"):
        published.keep("heartbeat", tmp_path, tmp_path / "published")
    assert not (tmp_path / "published").exists()


def test_a_run_of_a_busy_machine_is_not_published(tmp_path):
    heartbeat(tmp_path / "heartbeat", [1], runs_not_quiet=2)
    with pytest.raises(ReportError, match="2 of its runs began on a machine"):
        published.keep("heartbeat", tmp_path, tmp_path / "published")


def test_a_run_that_does_not_say_what_was_measured_is_not_published(tmp_path):
    heartbeat(tmp_path / "heartbeat", [1])
    file = tmp_path / "heartbeat" / "summary.json"
    content = json.loads(file.read_text(encoding="ascii"))
    del content["manifest"]["changed_meanwhile"]
    file.write_text(json.dumps(content), encoding="ascii")
    with pytest.raises(ReportError, match="run the experiment again"):
        published.keep("heartbeat", tmp_path, tmp_path / "published")


def test_published_rows_keep_their_configurations_without_paths_of_this_machine(tmp_path):
    heartbeat(tmp_path / "heartbeat", [1], configs={"abc": {"socket": "/tmp/lab-1/admin.sock", "delay": "10ms"}})
    published.keep("heartbeat", tmp_path, tmp_path / "published")
    kept = json.loads((tmp_path / "published" / "heartbeat" / "summary.json").read_text(encoding="ascii"))
    assert kept["manifest"]["configs"] == {"abc": {"socket": "(path)", "delay": "10ms"}}


def test_a_path_of_this_machine_is_not_published(tmp_path):
    heartbeat(tmp_path / "heartbeat", [1], command="./dev bench heartbeat --dir /home/me/x")
    with pytest.raises(ReportError, match="/home/me"):
        published.keep("heartbeat", tmp_path, tmp_path / "published")
