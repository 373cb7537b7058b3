# SPDX-License-Identifier: Apache-2.0
"""The browser of the lab as the page's tests need it: keys are pressed, answers rewritten on their way to the page, and what assistive
technology sees is read.
"""

import base64
import json
import os

from deploy.lab import Host, browser

KEYS = {  # key: (code, Windows virtual key code)
    "Tab": ("Tab", 9), "Enter": ("Enter", 13), "Escape": ("Escape", 27), "PageUp": ("PageUp", 33),
    "PageDown": ("PageDown", 34), "End": ("End", 35), "Home": ("Home", 36), "ArrowLeft": ("ArrowLeft", 37),
    "ArrowRight": ("ArrowRight", 39), " ": ("Space", 32),
}


class Browser(browser.Browser):
    def __init__(self, host: Host):
        super().__init__(host)
        self._rewrite = None
        self._ignored: set[int] = set()

    def begin_anew(self) -> None:
        """For another test: an empty page that looks as at first, and nothing remembered."""
        self.call("Page.navigate", url="about:blank")
        self.listen(0.1)
        self.call("Fetch.disable")
        self.call("Storage.clearDataForOrigin", origin="*", storageTypes="all")
        self.look_like()
        self.requests.clear()
        self.complaints.clear()

    def text(self, selector: str) -> str:
        return self.ask(f"document.querySelector({json.dumps(selector)})?.textContent ?? null")

    def press(self, *keys: str) -> None:
        for key in keys:
            code, number = KEYS[key]
            about = {"key": key, "code": code, "windowsVirtualKeyCode": number}
            if key in ("Enter", " "):
                about["text"] = "\r" if key == "Enter" else " "
            self.call("Input.dispatchKeyEvent", type="keyDown", **about)
            self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def accessible(self) -> list[dict]:
        """The tree that assistive technology sees: role, name and properties of each node that it is shown."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [{"role": node.get("role", {}).get("value"), "name": node.get("name", {}).get("value", ""),
                 **{each["name"]: each["value"].get("value") for each in node.get("properties", [])}}
                for node in nodes if not node.get("ignored")]

    # -- rewriting answers ---------------------------------------------------------------------------------

    def rewrite(self, path: str, change) -> None:
        """From now on the answers under `path` go through `change(data)` before the page sees them."""
        self._rewrite = change
        self.call("Fetch.enable", patterns=[{"urlPattern": f"*{path}*", "requestStage": "Response"}])

    def _answer_paused(self, params: dict) -> None:
        def post(method: str, **rest) -> None:
            self._last_id += 1
            self._ignored.add(self._last_id)
            os.write(self._out, json.dumps({"id": self._last_id, "method": method, "sessionId": self._session,
                                            "params": {"requestId": params["requestId"], **rest}}).encode() + b"\0")

        if "responseErrorReason" in params:
            post("Fetch.failRequest", errorReason=params["responseErrorReason"])
            return
        try:
            body = self.call("Fetch.getResponseBody", requestId=params["requestId"])
        except RuntimeError:
            return  # the page that asked is gone
        raw = base64.b64decode(body["body"]) if body["base64Encoded"] else body["body"].encode()
        data = json.loads(raw)
        self._rewrite(data)
        post("Fetch.fulfillRequest", responseCode=200, responseHeaders=params.get("responseHeaders", []),
             body=base64.b64encode(json.dumps(data).encode()).decode())

    def _take(self, message: dict) -> None:
        if message.get("id") in self._ignored:
            self._ignored.remove(message["id"])
        else:
            super()._take(message)

    def _note(self, event: dict) -> None:
        if event.get("method") == "Fetch.requestPaused":
            self._answer_paused(event["params"])
        else:
            super()._note(event)
