# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium in a host of the lab, driven over the DevTools protocol through a pair of pipes.

Pipes need neither a driver program nor a port, and they reach into a network namespace. Protocol messages are JSON ended
by a zero byte. Everything that the page asks for, says on its console or breaks of its policy is noted. Used by
demo/pictures.py, and by the page's tests with more (tests/e2e/harness/browser.py).
"""

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path

from deploy.lab import Host

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--disable-extensions",
         "--disable-default-apps", "--metrics-recording-only", "--no-default-browser-check", "--hide-scrollbars",
         "--remote-debugging-pipe"]


def program() -> str | None:
    return shutil.which("chromium")


class Browser:
    """One page, open inside the `with` block."""

    def __init__(self, host: Host):
        self.host = host
        self.requests: list[str] = []   # addresses that the page asked for
        self.complaints: list[str] = []  # errors on the console, exceptions, broken policies
        self._last_id = 0
        self._answers: dict[int, dict] = {}
        self._buffer = b""
        self._session: str | None = None

    def __enter__(self) -> "Browser":
        with contextlib.ExitStack() as stack:
            self._profile = Path(tempfile.mkdtemp(prefix="hedgerow-browser-"))
            stack.callback(shutil.rmtree, self._profile, ignore_errors=True)
            self._start(stack)
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
                self.call(f"{domain}.enable")
            self._closing = stack.pop_all()
        return self

    def __exit__(self, *_exc) -> None:
        self._closing.close()

    def _start(self, stack: contextlib.ExitStack) -> None:
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        for fd in (self._out, self._in):
            stack.callback(os.close, fd)
        command = ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash", program(), *FLAGS,
                   f"--user-data-dir={self._profile}", "about:blank"]
        log = self.host.scratch("browser") / "chromium.log"
        self._child = self.host.popen(command, log=log, pass_fds=(to_browser, from_browser))
        stack.callback(self.host.stop, self._child, signal.SIGKILL)
        os.close(to_browser)
        os.close(from_browser)

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    # -- the protocol --------------------------------------------------------------------------------------

    def call(self, method: str, timeout_s: float = 30.0, **params) -> dict:
        self._last_id += 1
        wanted = self._last_id
        message = {"id": wanted, "method": method, "params": params}
        if self._session is not None and not method.startswith("Target."):
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout_s
        while wanted not in self._answers:
            self._take(self._next(deadline, method))
        answer = self._answers.pop(wanted)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _take(self, message: dict) -> None:
        """An answer is kept for its caller: noting an event may ask something itself."""
        if "id" not in message:
            self._note(message)
        else:
            self._answers[message["id"]] = message

    def _next(self, deadline: float, waiting_for: str) -> dict:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"the browser does not answer to {waiting_for}")
            chunk = os.read(self._in, 1 << 16)
            if not chunk:
                raise RuntimeError("the browser ended")
            self._buffer += chunk
        text, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(text)

    def _note(self, event: dict) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(json.dumps(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Page.javascriptDialogOpening":
                self.complaints.append(f"dialog: {params['message']}")

    def listen(self, seconds: float) -> None:
        """Takes in what the page does meanwhile."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                self._take(self._next(deadline, "nothing"))

    # -- the page ------------------------------------------------------------------------------------------

    def open(self, address: str) -> None:
        self.requests.clear()
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'", 20.0)

    def ask(self, expression: str):
        """The value of an expression in the page."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(f"{expression}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def wait(self, expression: str, timeout_s: float = 10.0):
        """Until the expression is true; its value."""
        deadline = time.monotonic() + timeout_s
        while not (value := self.ask(expression)):
            assert time.monotonic() < deadline, f"{expression} did not come true in {timeout_s} s"
            self.listen(0.1)
        return value

    def look_like(self, *, width: int = 1200, height: int = 900, dark: bool = False, mobile: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if mobile else 1,
                  mobile=mobile)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.listen(0.3)

    def screenshot(self, path: Path, whole: bool = True) -> Path:
        """Of the whole page, or of what its window shows."""
        path.parent.mkdir(parents=True, exist_ok=True)
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=whole, format="png")
        path.write_bytes(base64.b64decode(picture["data"]))
        return path
