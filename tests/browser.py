"""Headless Chromium by its DevTools protocol, for the tests that look at pages."""
import importlib.resources
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = ["headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
         "disable-component-update", "disable-sync", "remote-debugging-port=0", "window-size=1400,1000",
         "hide-scrollbars"]


class Page:
    """A page in headless Chromium: `asked` holds the addresses that it asked for, `errors` what its scripts did wrong.

    It has no network but, where `local` is given, this machine's own servers.
    """

    def __init__(self, port: int, local: bool = False):
        import websocket
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
            target = next(t for t in json.load(answer) if t["type"] == "page")
        # only a hang takes as long
        self.socket = websocket.create_connection(target["webSocketDebuggerUrl"], suppress_origin=True, timeout=300)
        self.number, self.asked, self.errors = 0, [], []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        if not local:
            self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0,
                      uploadThroughput=0)

    def call(self, method: str, **params) -> dict:
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": params}))
        while (message := json.loads(self.socket.recv())).get("id") != self.number:
            if message.get("method") == "Network.requestWillBeSent":
                self.asked.append(message["params"]["request"]["url"])
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(message["params"]["exceptionDetails"])
            if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.errors.append(message["params"]["entry"])
            if message.get("method") == "Runtime.consoleAPICalled" and message["params"]["type"] == "error":
                self.errors.append(message["params"]["args"])
        assert "error" not in message, message
        return message["result"]

    def js(self, expression: str):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **options):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **options)

    def click(self, x: float, y: float):
        self.mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def open(self, url: str, ready: str = "true"):
        "Goes to `url` and waits until the page has loaded and the expression `ready` is true."
        self.call("Page.navigate", url=url)
        for _ in range(1200):
            if self.js(f"document.readyState === 'complete' && location.href !== 'about:blank' && !!({ready})"):
                return
            time.sleep(0.05)
        raise AssertionError(f"{url}: {ready} did not come true")

    def violations(self, where: str = "document") -> list:
        "What axe finds wrong for people who read or operate a page in another way; of each the rule and three places."
        self.js((importlib.resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8") + ";0")
        return self.js(f"""axe.run({where}, {{resultTypes: ['violations']}}).then(found => found.violations.map(
            v => [v.id, v.help, v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + n.failureSummary)]))""")

    def size(self, width: int, height: int = 1000):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)


@contextmanager
def browser(profile: Path, local: bool = False) -> Iterator[Page]:
    "A page of a browser of its own, which ends with the block."
    if BROWSER is None:
        pytest.skip("no browser: install chromium to test pages in one")
    flags = [*FLAGS, f"user-data-dir={profile}"]
    if local:
        flags.append("host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
    process = subprocess.Popen([BROWSER, *(f"--{flag}" for flag in flags), "about:blank"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port = profile / "DevToolsActivePort"
        for _ in range(600):
            if port.exists() and port.read_text().count("\n"):
                break
            assert process.poll() is None, f"{BROWSER} ended with {process.returncode}"
            time.sleep(0.1)
        yield Page(int(port.read_text().split()[0]), local)
    finally:
        process.terminate()
        process.wait(30)
