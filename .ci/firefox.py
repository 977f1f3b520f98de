"""Does the playground train in Firefox, too? By hand: python .ci/firefox.py [FIREFOX] (default firefox-esr, firefox).

It writes the page, opens it in a headless Firefox with a profile of its own, presses Train and prints what it reads,
until half of the unseen sentences are right; then it looks inside. Firefox's remote protocol (WebDriver BiDi, over a
websocket) needs no driver; `websocket` comes with the dev environment. Exit code 1 where it does not learn.
"""
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import websocket

from annotated_transformer.inside.playground import playground_page


class Firefox:
    "A tab of Firefox that evaluates expressions."

    def __init__(self, program: str, folder: Path):
        self.process = subprocess.Popen([program, "--headless", "--no-remote", "--profile", folder,
                                         "--remote-debugging-port", "0"], stderr=subprocess.PIPE, text=True)
        address = next(found[1] for line in self.process.stderr if (found := re.search(r"BiDi.* on (ws://\S+)", line)))
        self.socket, self.number = websocket.create_connection(f"{address}/session", suppress_origin=True), 0
        self.call("session.new", capabilities={})
        self.tab = self.call("browsingContext.getTree")["contexts"][0]["context"]

    def call(self, method: str, **params) -> dict:
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": params}))
        while (answer := json.loads(self.socket.recv())).get("id") != self.number:
            pass
        assert answer["type"] == "success", answer
        return answer["result"]

    def js(self, expression: str):
        answer = self.call("script.evaluate", expression=f"JSON.stringify({expression})", awaitPromise=True,
                           target={"context": self.tab})
        assert answer["type"] == "success", answer
        return json.loads(answer["result"].get("value", "null"))


def main() -> int:
    program = next(filter(None, map(shutil.which, sys.argv[1:] or ["firefox-esr", "firefox"])), None)
    if program is None:
        sys.exit("no Firefox: name its program")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(playground_page(), encoding="utf-8")
        (Path(folder) / "profile").mkdir()
        firefox = Firefox(program, Path(folder) / "profile")
        try:
            firefox.call("browsingContext.navigate", context=firefox.tab, url=file.as_uri(), wait="complete")
            while not firefox.js("document.body.dataset.ready ?? null"):
                time.sleep(0.2)
            firefox.js("$('go').click() ?? 0")
            report = {"right": 0, "step": 0}
            while report["right"] < 100 and report["step"] < 600:
                time.sleep(2)
                report = firefox.js("(({step, seconds, loss, right}) => ({step, seconds, loss, right}))(last(run))")
                print("{step} updates in {seconds:.1f} s: loss {loss:.2f}, {right} of 200 right".format(**report))
            firefox.js("ask('stop') && 0")
            firefox.js("new Promise(done => setTimeout(done, 2000))")
            firefox.js("$('open').click() ?? 0")
            frame = "document.querySelector('iframe.live')?.contentDocument"
            inside = f"{frame}?.getElementById('now')?.textContent || null"
            for _ in range(100):
                if firefox.js(inside):
                    break
                time.sleep(0.2)
            print("inside:", firefox.js(inside))
            return 0 if report["right"] >= 100 and firefox.js(inside) else 1
        finally:
            firefox.process.terminate()
            firefox.process.wait(30)


if __name__ == "__main__":
    sys.exit(main())
