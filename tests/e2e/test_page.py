# SPDX-License-Identifier: Apache-2.0
"""The live page in a real browser, served by a real daemon under real load."""

import contextlib
import json
import os
import re
import signal
import time

import pytest

from deploy.lab import browser as browser_module
from harness import machine
from harness.browser import Browser
from harness.dns import UdpClient, dig, query, start_dnsperf
from harness.product import BIN, DNS4, DNS6, METRICS, PROJECT, VIP4

ADDRESS = "http://127.0.0.1:9464/"
PICTURES = PROJECT / "build" / "log" / "page"
HOSTILE = '<img src=x onerror="alert(1)"></script><script>alert(2)</script>'

# Each element's own text against the ground it stands on (WCAG 2.1, 1.4.3), and each line of a chart against its panel.
LOW_CONTRAST = """(() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const ratio = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const wrong = [];
  for (const node of document.querySelectorAll("body *")) {
    if (node.checkVisibility && !node.checkVisibility()) continue;
    const style = getComputedStyle(node);
    const isLine = ["path", "line"].includes(node.tagName) && /series|mark|reference|cursor/.test(node.getAttribute("class"));
    const ownText = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!isLine && !ownText) continue;
    const svg = node.closest("svg") !== null;
    const color = isLine ? style.stroke : svg ? style.fill : style.color;
    const found = ratio(parse(color), ground(node));
    if (found < (isLine ? 3 : 4.5)) wrong.push(`${node.tagName}.${node.getAttribute("class")} ${found.toFixed(2)} ${node.textContent.slice(0, 30)}`);
  }
  return wrong;
})()"""


@pytest.fixture(scope="module")
def need_browser():
    if browser_module.program() is None:
        pytest.skip("no Chromium: the distribution has no package of it")


@pytest.fixture
def served(product, servers):
    return product.up(metrics=METRICS)


class Shared:
    """One browser for all tests: starting it takes seconds. It lives in the lab's client host, so it must be gone before
    `down` is compared with what was before `up`."""

    def __init__(self):
        self.browser: Browser | None = None

    def open_in(self, host) -> Browser:
        if self.browser is not None and (self.browser.host is not host or not self.browser.alive):
            self.close()
        if self.browser is None:
            self.browser = Browser(host)
            self.browser.__enter__()
        self.browser.begin_anew()
        return self.browser

    def close(self) -> None:
        browser, self.browser = self.browser, None
        if browser is not None:
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # gone with its lab, after a test that failed
                browser.__exit__(None, None, None)


@pytest.fixture(scope="module")
def shared(need_browser, stacks):
    shared = Shared()
    yield shared
    shared.close()


@pytest.fixture
def browser(shared, served, lab):
    return shared.open_in(lab.client)


@pytest.fixture
def page(browser):
    """Open, with a sample, and so far without a complaint; afterwards still without one."""
    browser.open(ADDRESS)
    browser.wait("document.querySelector('#state').dataset.state === 'running'")
    yield browser
    assert browser.complaints == []
    assert [url for url in browser.requests if not url.startswith(ADDRESS)] == []


@contextlib.contextmanager
def load(lab, rate: int = 200):
    child, _ = start_dnsperf(lab.client, VIP4, seconds=60, rate=rate)
    try:
        yield
    finally:
        lab.client.stop(child)


POINTS = "(document.querySelector('#answer-times path[data-series=\"p99\"]')?.getAttribute('d').match(/[ML]/g) ?? []).length"


@pytest.fixture
def past(lab, page):
    """An open page that has some seconds of load to show. The daemon remembers those of the tests before; only where it does
    not, there is load now."""
    page.listen(0.2)
    if page.ask(POINTS) < 5:
        with load(lab, rate=100):
            page.wait(f"{POINTS} >= 5", 20.0)
    return page


def line_of(browser, chart: str, series: str) -> str:
    return browser.ask(f"document.querySelector('#{chart} path[data-series=\"{series}\"]')?.getAttribute('d') ?? ''")


def test_the_chart_moves_under_load(lab, page):
    assert line_of(page, "answer-times", "p99") == ""
    with load(lab):
        page.wait("document.querySelector('#answer-times path[data-series=\"p99\"]').getAttribute('d').includes('L')")
        before = line_of(page, "answer-times", "p99")
        answered = page.ask(POINTS)
        rate = page.wait("(() => { const dd = [...document.querySelectorAll('#tiles div')]"
                         ".find((tile) => tile.textContent.startsWith('Requests')).querySelector('dd span').textContent;"
                         "return parseFloat(dd.replace(',', '')) > 20 && dd; })()")
        assert rate.endswith("/s")
        page.wait(f"{POINTS} > {answered}")
        after = line_of(page, "answer-times", "p99")
    assert after != before and len(after) > len(before)
    # dnsperf's 200/s go to the leader.
    assert line_of(page, "backends-sent", "a") and page.text("#extra-load .reference-name") == "budget 5 %"


def test_a_page_that_is_opened_late_shows_the_past(past):
    """As soon as it is there, with the first data that it gets."""
    past.open("about:blank")
    past.open(ADDRESS)
    past.wait(f"{POINTS} >= 3", 2.0)


def test_a_hedge_is_counted_and_a_silent_backend_is_told(lab, servers, served, page):
    with load(lab, rate=100):
        page.wait(f"{POINTS} >= 1")
        servers["a"].stall()
        page.wait("[...document.querySelectorAll('#events li[data-kind=health]')].length > 0")
        page.wait("/suspect|down/.test(document.querySelector('#backends tbody tr td:nth-child(3)').textContent)")
        servers["a"].resume()
        page.wait("/a answers again/.test(document.querySelector('#events').textContent)")
    page.wait("[...document.querySelectorAll('#tiles div')].some((tile) => /^(Hedged|Failed over)[1-9]/.test(tile.textContent))")
    page.screenshot(PICTURES / "after-a-stall.png")


def test_a_change_of_the_leader_is_a_mark_in_every_chart(served, page):
    marks = "[...document.querySelectorAll('line[data-mark=leader]')].map((line) => line.dataset.name)"
    before = page.ask(marks)
    served.admin("leader", "set", DNS4, "b")
    page.wait(f"{marks}.length === {len(before) + 4}")
    assert sorted(page.ask(marks)) == sorted(before + ["→ b"] * 4), "one in each chart"
    assert "dns4: b leads, after a: pinned by an administrator" in page.text("#events")
    assert "→ b" in page.ask("[...document.querySelectorAll('#answer-times .mark-name')].map((each) => each.textContent)")
    served.admin("leader", "unset", DNS4)
    page.wait(f"{marks}.length === {len(before) + 8}")
    # Another service's charts have no mark of it.
    page.ask(f"[...document.querySelectorAll('#services button')].find((b) => b.textContent === '{DNS6}').click()")
    assert page.text("#service-title") == DNS6 and page.ask(marks) == []


def test_a_daemon_that_hangs_shows_as_stale_and_comes_back(served, page):
    pid = served.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        page.wait("document.querySelector('#state').dataset.state === 'stale'")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "has not answered since" in page.text("#alerts") and page.ask("document.title").startswith("stale")
    page.wait("document.querySelector('#state').dataset.state === 'running'")
    assert page.text("#alerts") == ""
    page.complaints.clear()  # the browser notes each question without an answer


def test_a_dead_daemon_shows_as_stale_and_the_next_one_goes_on(lab, served, page):
    with load(lab, rate=100):
        page.wait(f"{POINTS} >= 2")
        os.kill(served.pid, signal.SIGKILL)
        page.wait("document.querySelector('#state').dataset.state === 'stale'")
        page.screenshot(PICTURES / "stale.png")
        assert "hedgerowd has not answered" in page.text("#alerts")
        past = line_of(page, "answer-times", "p50")
        assert past.count("L") >= 1, "what was known stays to be seen"
        served.run("up", "--config", served.folder / "hedgerow.yaml", check=True)
        served.bpf_objects |= machine.bpf_objects(served.pid)
        page.wait("document.querySelector('#state').dataset.state === 'running'", 20.0)
        page.wait("document.querySelectorAll('#events li[data-kind=start]').length === 2")  # one of each daemon
        page.wait("document.querySelector('#answer-times path[data-series=\"p50\"]').getAttribute('d').split('M').length > 2")
    page.complaints.clear()


def test_everything_can_be_done_from_the_keyboard(past):
    page = past
    reached = []
    for _ in range(40):
        page.press("Tab")
        here = page.ask("(() => { const e = document.activeElement; return e === document.body ? null : "
                        "`${e.tagName} ${e.id || e.closest('figure')?.id || e.textContent.slice(0, 20)}`; })()")
        if here is None or here in reached[:1]:
            break
        reached.append(here)
        outline = page.ask("(() => { const s = getComputedStyle(document.activeElement); "
                           "return s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2; })()")
        assert outline, f"no visible focus on {here}"
    for wanted in ("SELECT window", "BUTTON pause", "BUTTON theme", "BUTTON dns4", "BUTTON dns6", "DIV answer-times",
                   "DIV extra-load", "DIV outcomes", "DIV backends-sent", "SUMMARY answer-times", "SUMMARY The daemon"):
        assert any(each.startswith(wanted) for each in reached), (wanted, reached)
    page.ask("document.querySelector('#answer-times .plot').focus()")
    page.press("ArrowLeft", "ArrowLeft")
    said = page.ask("document.querySelector('#answer-times .plot').getAttribute('aria-valuetext')")
    assert "p50 " in said and page.text("#answer-times .readout") == said
    assert page.ask("document.querySelectorAll('line.cursor').length") == 4, "the charts share the cursor"
    page.press("Home")
    assert page.text("#answer-times .readout") != said
    page.press("Escape")
    assert page.text("#answer-times .readout") == "" and page.ask("document.querySelectorAll('line.cursor').length") == 0
    page.ask("[...document.querySelectorAll('#services button')].at(-1).focus()")
    page.press("Enter")
    assert page.text("#service-title") == DNS6
    page.ask("document.querySelector('#pause').focus()")
    page.press(" ")
    assert page.ask("document.querySelector('#state').dataset.state") == "paused"
    page.press(" ")
    page.wait("document.querySelector('#state').dataset.state === 'running'")
    # What a sample updates must not take the focus away.
    as_of = page.text("#as-of")
    page.wait(f"document.querySelector('#as-of').textContent !== {json.dumps(as_of)}")
    assert page.ask("document.activeElement.id") == "pause"


def test_assistive_technology_finds_names_values_and_tables(lab, past):
    page = past
    nodes = page.accessible()
    nameless = [node for node in nodes if node.get("focusable") and not node["name"] and node["role"] != "RootWebArea"
                and node["role"] not in ("main", "generic")]
    assert nameless == []
    sliders = [node for node in nodes if node["role"] == "slider"]
    assert [node["name"] for node in sliders] == ["Answer times: a moment", "Extra load: a moment",
                                                  "What became of slow requests: a moment",
                                                  "Datagrams to each backend: a moment"]
    with load(lab, rate=100):
        said = page.wait("(() => { const said = document.querySelector('#answer-times .plot').getAttribute('aria-valuetext');"
                         "return said.includes('p50 –') ? null : said; })()")
    assert re.fullmatch(r"\d\d:\d\d:\d\d: p50 [\d.]+ [mµ]s, p99 .*, p99.9 .*", said), said
    page.ask("document.querySelector('#answer-times details').open = true")
    page.wait("document.querySelectorAll('#answer-times tbody tr').length >= 2")
    assert page.ask("document.querySelectorAll('#answer-times tbody tr td').length % 3") == 0
    assert page.ask("document.documentElement.lang") == "en"


def test_it_is_readable_in_light_and_dark(served, past):
    page = past
    marks = "document.querySelectorAll('#answer-times line[data-mark=leader]').length"
    before = page.ask(marks)
    served.admin("leader", "set", DNS4, "b")
    page.wait(f"{marks} > {before}")
    served.admin("leader", "unset", DNS4)
    page.wait(f"{marks} > {before + 1}")
    ground = "getComputedStyle(document.body).backgroundColor"
    grounds = {}
    for name in ("light", "dark"):
        page.look_like(dark=name == "dark")
        assert page.ask(LOW_CONTRAST) == [], name
        grounds[name] = page.ask(ground)
        page.screenshot(PICTURES / f"{name}.png")
    assert grounds["light"] != grounds["dark"], "it follows the system"
    while page.ask("document.querySelector('#theme').dataset.theme") != "light":
        page.ask("document.querySelector('#theme').click()")
    assert page.ask(ground) == grounds["light"], "or the person's choice"
    assert page.ask(LOW_CONTRAST) == []


def test_the_check_of_contrast_sees_a_faint_text(page):
    page.ask("document.querySelector('#as-of').style.color = 'rgb(200, 200, 200)'")
    assert len(page.ask(LOW_CONTRAST)) == 1


def test_a_phone_needs_no_scrolling_sideways(past):
    page = past
    page.ask("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    for width in (320, 360, 412):
        page.look_like(width=width, height=780, mobile=True)
        assert page.ask("document.documentElement.scrollWidth <= window.innerWidth && window.innerWidth") == width
        over = page.ask("[...document.querySelectorAll('body *')].filter((e) => !e.closest('.skip, thead') && "
                        "e.getBoundingClientRect().right > window.innerWidth + 1).map((e) => e.tagName + '.' + e.className)")
        assert over == [], width
        narrow = page.ask("[...document.querySelectorAll('body *')].filter((e) => e.textContent.length > 8 && e.checkVisibility()"
                          " && !e.closest('.skip, thead') && e.offsetWidth && e.offsetWidth < 20).map((e) => e.textContent)")
        assert narrow == [], "one letter below the other"
        small = page.ask("[...document.querySelectorAll('button, select')].filter((e) => "
                         "e.getBoundingClientRect().height < 32).map((e) => e.textContent)")
        assert small == [], "fingers need room"
        page.screenshot(PICTURES / f"phone-{width}.png")


def state_of(number: int) -> str:
    return f"document.querySelector('#services tbody tr:nth-child({number}) td:nth-child(3)').textContent"


def test_dry_runs_and_drained_backends_have_their_words(lab, servers, served, past):
    page = past
    served.admin("dry-run", DNS4, "on")
    page.wait("/dry run: what would be hedged after 10 ms is counted, and nothing is sent twice/"
              ".test(document.querySelector('#service-facts').textContent)")
    assert page.text("#answer-times .reference-name") == "would be hedged after 10 ms"
    hedges = served.figure("hedges")
    servers["a"].stall()
    with UdpClient(lab.client, VIP4) as client:
        for number in range(40):
            client.send(query(number, "www.example.test"))
        page.wait("[...document.querySelectorAll('#tiles div')].some((tile) => /^Would (hedge|fail over)[1-9]/.test(tile.textContent))")
        servers["a"].resume()
        assert len(client.receive_all(quiet_s=0.5)) == 40  # all of them from the leader, late
    assert served.figure("hedges") == hedges
    served.admin("drain", "a", DNS4)
    served.admin("drain", "b", DNS6)
    page.wait(f"{state_of(1)} === 'healthy, dry run, a drained' && {state_of(2)} === 'healthy, b drained'")
    assert "requests go to b, while the leader is drained" in page.text("#service-facts")
    assert page.text("#backends tbody tr td:nth-child(3)") == "drained: gets nothing new"
    told = page.text("#events")
    assert "dns4: dry run begins: nothing is sent twice" in told and "dns6: b is drained: it gets nothing new" in told
    for dark in (False, True):
        page.look_like(dark=dark)
        assert page.ask(LOW_CONTRAST) == []
        page.screenshot(PICTURES / f"dry-run-{'dark' if dark else 'light'}.png")
        page.look_like(dark=dark, width=360, height=780, mobile=True)
        assert page.ask("document.documentElement.scrollWidth <= window.innerWidth")
        page.screenshot(PICTURES / f"dry-run-phone-{'dark' if dark else 'light'}.png")
    page.look_like()
    served.admin("drain", "b", DNS4)
    page.wait("/no other backend is available/.test(document.querySelector('#backends').textContent)")
    served.admin("dry-run", DNS4, "off")
    served.admin("undrain", "a")
    served.admin("undrain", "b")
    page.wait(f"{state_of(1)} === 'healthy' && {state_of(2)} === 'healthy'")
    told = page.text("#events")
    assert "dns4: dry run ends" in told and "dns4: a serves again" in told


def test_hostile_names_are_text_and_nothing_else(served, browser):
    def poison(data: dict) -> None:
        for service in (*data["services"], *data.get("status", {}).get("services", [])):
            service["name"] = HOSTILE + service["name"]
            for backend in service["backends"]:
                backend["name"] = HOSTILE + backend["name"]
            service["leader"] = HOSTILE
        data["status"]["problems"] = [HOSTILE]
        data["status"]["instance"] = HOSTILE
        data["status"]["uplinks"][0]["name"] = HOSTILE
        data["events"].append({"sample": data["next"], "at_ms": data["now_ms"], "kind": "leader", "service": "", "from": "",
                               "to": HOSTILE, "backend": "", "term": 1, "text": HOSTILE})

    browser.rewrite("/api/v1/page", poison)
    browser.open(ADDRESS)
    browser.wait("document.querySelector('#alerts').textContent.includes('onerror')")
    browser.wait("document.querySelector('line[data-mark=leader]') !== null")
    browser.listen(1.5)
    assert HOSTILE in browser.text("#events") and browser.text("#service-title").startswith(HOSTILE)
    assert browser.ask("document.querySelectorAll('img, script:not([src])').length") == 0
    assert browser.complaints == []


def test_the_policy_stops_a_script_that_got_in_all_the_same(page):
    """The second line of defence, tried by hand: markup that reached the page neither runs nor calls home."""
    page.ask("""(() => {
      const script = document.createElement("script");
      try { script.textContent = "window.ran = true"; } catch (error) { window.refused = error.name; }
      document.body.append(script);
    })()""")
    assert page.ask("window.ran ?? null") is None
    assert page.ask("fetch('http://127.0.0.1:1/').then(() => 'sent', () => 'refused')") == "refused"
    assert any("Content Security Policy" in each for each in page.complaints), page.complaints
    page.complaints.clear()
    page.requests.clear()


def test_strangers_are_refused(lab, served):
    """What a browser would send that was led here by a name of somebody else's, and what is no GET."""
    def curl(*options: str) -> str:
        script = ("import http.client, sys\n"
                  "c = http.client.HTTPConnection('127.0.0.1', 9464, timeout=5)\n"
                  "c.putrequest(sys.argv[1], sys.argv[2], skip_host=True)\n"
                  "c.putheader('Host', sys.argv[3]); c.endheaders()\n"
                  "r = c.getresponse(); print(r.status, len(r.read()), r.getheader('Content-Security-Policy'))")
        return lab.client.run(["/usr/bin/python3", "-c", script, *options]).stdout

    for path in ("/", "/api/v1/page", "/metrics"):
        assert curl("GET", path, "evil.example:9464").startswith("421 ")
        assert curl("POST", path, "localhost").startswith("405 ")
        assert curl("GET", path, "localhost:9464").startswith("200 ")
    assert "default-src 'none'" in curl("GET", "/", "localhost")
    assert curl("GET", "/../../etc/passwd", "localhost").startswith("404 ")


def test_an_adaptive_delay_is_a_line_of_its_own(shared, lab, servers, product):
    shared.close()
    product.up(metrics=METRICS, services=product.services("dns", adaptive={"floor": "1ms", "cap": "200ms"}))
    page = shared.open_in(lab.client)
    page.open(ADDRESS)
    with load(lab, rate=100):
        page.wait("document.querySelector('#answer-times path[data-series=delay]')?.getAttribute('d').includes('L')")
        # The fixed delay is 10 ms; a healthy server's answers take less than the floor, on a busy machine a little more.
        page.wait("/hedged after (?!10 )[0-9.]+ ms \\(adaptive: it follows the answer times\\)/"
                  ".test(document.querySelector('#service-facts').textContent)", 20.0)
    assert page.text("#answer-times .reference-name") is None
    assert page.ask("[...document.querySelectorAll('#answer-times .legend li')].some((item) => item.textContent.startsWith(' delay'))")
    page.screenshot(PICTURES / "adaptive.png")
    shared.close()


def test_the_page_can_be_switched_off_and_the_metrics_stay(shared, lab, servers, product):
    shared.close()
    product.up(metrics=METRICS, page={"serve": "off"})
    assert product.status()["page"] == "" and "page " not in product.admin("status").stdout
    assert product.metric("hedgerow_bypass", service=DNS4) == 0
    fetch = "import urllib.request as u; u.urlopen('http://127.0.0.1:9464/', timeout=5)"
    assert "404" in lab.client.run(["/usr/bin/python3", "-c", fetch], check=False).stderr


def test_status_names_the_page(served):
    assert served.status()["page"] == "127.0.0.1:9464"
    assert f"page         {ADDRESS}" in served.admin("status").stdout


def test_a_page_that_nobody_looks_at_costs_next_to_nothing(lab, served):
    """The daemon's processor time at rest is what it was without a page: below 2 % of one processor."""
    dig(lab.client, VIP4, "www.example.test")

    def cpu_ticks() -> int:
        fields = open(f"/proc/{served.pid}/stat", encoding="ascii").read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before, began = cpu_ticks(), time.monotonic()
    time.sleep(4)
    share = (cpu_ticks() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)
    assert share < 0.02


def test_the_groups_of_steered_daemons_are_shown(product, servers, shared, lab):
    """With the state of each worker while its supervisor answers, and the reason at the top when it does not."""
    name, run_dir = f"page-{os.getpid()}", lab.client.scratch("page-steer")
    shared.close()  # the daemon of the other tests goes down, and the machine is compared
    product.up(metrics=METRICS, page={"steer_groups": str(run_dir)})
    steer = [BIN / "hedgerow-steer"]
    group = ["--name", name, "--run-dir", str(run_dir)]
    run = [*steer, "run", "--listen", "127.0.0.1:2055", "--workers", "2", *group, "--", "sleep", "600"]
    page = shared.open_in(lab.client)
    page.open(ADDRESS)
    page.wait("document.querySelector('#state').dataset.state === 'running'")
    assert page.ask("document.querySelector('#steer').hidden")
    supervisor = lab.client.popen(run)
    try:
        page.wait("document.querySelectorAll('#slots tbody tr').length === 2", 15.0)
        page.wait("[...document.querySelectorAll('#slots tbody tr')].every((row) => /serving for/.test(row.textContent))", 10.0)
        assert not page.ask("document.querySelector('#steer').hidden")
        assert f"{name} 127.0.0.1:2055 (udp, tcp)" in page.ask("document.querySelector('#groups').textContent")
        assert "50.0 %" in page.ask("document.querySelector('#slots').textContent")
        page.screenshot(PICTURES / "steer.png")
        os.kill(supervisor.pid, signal.SIGKILL)
        supervisor.wait(10)
        page.wait(f"document.querySelector('#alerts').textContent.includes('group {name}: ')", 15.0)
        assert page.ask("document.querySelector('#steer').hidden")
    finally:
        lab.client.stop(supervisor, signal.SIGKILL)
        lab.client.run([*steer, "clean", *group], check=False)
    page.wait("document.querySelector('#alerts').textContent === ''", 15.0)
    assert page.complaints == []
    shared.close()
