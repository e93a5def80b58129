"""Take the pictures of the pages, from real runs of one small program.

Run it again when the report, `top` or notebooks look different: `python python/docs/pictures.py`. It needs the extras
`[report,plot,rich]`, playwright, Pillow, a Chromium, and tmux. A picture that cannot be taken is named, and stays as it
was.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt
from PIL import Image
from playwright.sync_api import Error, sync_playwright
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

import cprofiling

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

PICTURES = Path(__file__).resolve().parent / "pages" / "pictures"
BROWSERS = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")
WIDTH, MOST_BYTES = 1280, 100_000
# Files are packed by two threads. How well is an argument, and so is how often.
PROGRAM = """
import hashlib, os, sys, zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import cprofiling as cp

level, turns = int(sys.argv[1]), int(sys.argv[2])

@cp.profile_node
def read(path):
    return path.read_bytes()

@cp.profile_node
def count_words(data):
    words = {}
    for word in data.split():
        words[word] = words.get(word, 0) + 1
    return words

@cp.profile_node
def pack(data):
    return zlib.compress(data, level)

@cp.profile_node
def digest(data):
    return hashlib.sha256(data).hexdigest()

@cp.profile_node
def frame(path):
    data = read(path)
    if len(data) > 70_000:
        raise ValueError("too large")
    count_words(data)
    return digest(pack(data))

def guarded(path):
    try:
        return frame(path)
    except ValueError:
        return None

files = sorted(Path(os.__file__).parent.glob("*.py"))[:60]
for path in files:
    path.read_bytes()  # so that all files are in memory
cp.set_profiling(True)
with cp.stage("train"):
    for path in files:
        guarded(path)
with cp.stage("serve", default=True), ThreadPoolExecutor(2) as pool:
    for _ in range(turns):
        list(pool.map(guarded, files))
if len(sys.argv) > 3:
    with open(sys.argv[3], "wb") as file:
        file.write(cp.default_profiler.snapshot().to_bytes())
"""


def main() -> None:
    """Take all pictures, and end with status 1 if one could not be taken."""
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        raise SystemExit(f"there is no Chromium on PATH ({', '.join(BROWSERS)}): install one")
    PICTURES.mkdir(exist_ok=True)
    failed = []
    with tempfile.TemporaryDirectory(prefix="pictures-") as folder, sync_playwright() as browsers:
        os.chdir(folder)
        Path("pack.py").write_text(PROGRAM, encoding="utf-8")
        ours = ["-m", "cprofiling"]
        _run(*ours, "run", "-o", "trace.json", "pack.py", "6", "1")
        _run(*ours, "report", "trace.json", "-o", "trace.html")
        _run("pack.py", "1", "10", "before.cprof")
        _run("pack.py", "9", "10", "after.cprof")
        _run(*ours, "report", "after.cprof", "--against", "before.cprof", "-o", "comparison.html", may_be=(0, 3))
        browser = browsers.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        pictures: dict[str, Callable[[], bytes]] = {
            "nodes": lambda: _part(page, "trace.html", "#part-nodes", 520),
            "timeline": lambda: _part(page, "trace.html", "#part-timeline", 520),
            "comparison": lambda: _part(page, "comparison.html", "#part-comparison", 480),
            "top": lambda: _terminal(page),
            "notebook": lambda: _notebook(page),
            "histogram": _histogram,
        }
        for name, take in pictures.items():
            try:
                _save(name, take())
            except (Error, OSError, subprocess.SubprocessError, RuntimeError) as error:
                failed.append(name)
                print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr)
        browser.close()
        os.chdir(PICTURES)
    raise SystemExit(bool(failed))


def _run(*arguments: str, may_be: tuple[int, ...] = (0,)) -> None:
    done = subprocess.run([sys.executable, *arguments], check=False, capture_output=True, text=True)
    if done.returncode not in may_be:
        raise SystemExit(f"python {shlex.join(arguments)}: {done.stderr}")


def _save(name: str, picture: bytes) -> None:
    """Write a PNG of as many colours as its size allows."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    for colours in (128, 64, 32, 16):
        out = io.BytesIO()
        image.quantize(colours, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
        if len(out.getvalue()) <= MOST_BYTES:
            break
    (PICTURES / f"{name}.png").write_bytes(out.getvalue())
    print(f"{name}.png: {image.width} x {image.height}, {len(out.getvalue()):,} bytes")


def _part(page: Page, report: str, part: str, most: int) -> bytes:
    """Return a part of a report, as it opens, down to a height."""
    page.set_viewport_size({"width": WIDTH, "height": 4000})  # so that nothing is scrolled
    page.goto(Path(report).absolute().as_uri())
    page.wait_for_timeout(1500)
    box = page.locator(part).bounding_box(timeout=5000)
    if box is None:
        raise RuntimeError(f"{report} shows no {part}")
    clip = {"x": 0, "y": box["y"], "width": WIDTH, "height": min(box["height"], most)}
    return page.screenshot(clip=clip, full_page=True)  # type: ignore[arg-type]


def _terminal(page: Page) -> bytes:
    """Return what `cprofiling top` shows of the running program in a terminal of tmux."""
    watched = {**os.environ, "CPROFILING_LIVE": "live.cprof"}
    program = subprocess.Popen([sys.executable, "pack.py", "6", "100000"], env=watched)
    tmux = ["tmux", "-L", f"pictures-{os.getpid()}"]
    command = shlex.join([sys.executable, "-m", "cprofiling", "top", "live.cprof"])
    try:
        time.sleep(1)
        subprocess.run([*tmux, "-f", os.devnull, "new-session", "-d", "-x", "112", "-y", "22", command], check=True)
        time.sleep(6)
        shown = subprocess.run([*tmux, "capture-pane", "-p", "-e"], check=True, capture_output=True, text=True).stdout
    finally:
        subprocess.run([*tmux, "kill-server"], check=False, capture_output=True)
        program.terminate()
        program.wait()
    if "pack" not in shown:
        raise RuntimeError(f"top shows no node: {shown!r}")
    console = Console(record=True, width=112, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(shown.rstrip()))
    text = console.export_html(theme=MONOKAI, inline_styles=True, code_format="{code}")
    style = "margin:0;padding:12px;background:#0c0c0c;color:#d9d9d9;font:13px/1.3 'DejaVu Sans Mono',monospace"
    return _of_html(page, f'<pre id="shown" style="{style};display:inline-block">{text}</pre>')


def _notebook(page: Page) -> bytes:
    """Return a cell of a notebook with a summary below."""
    summary = cprofiling.Snapshot.from_bytes(Path("after.cprof").read_bytes()).stats()
    code, shown = "cp.get_profiling_summary()", summary._repr_html_()
    prompt = "color:#307fc1;font:13px monospace;padding:6px 12px;white-space:pre"
    cell = "border:1px solid #ddd;background:#f7f7f7;font:13px monospace;padding:6px;flex:1"
    return _of_html(
        page,
        f'<div id="shown" style="background:white;padding:10px;font:14px sans-serif;max-width:{WIDTH - 30}px">'
        f'<div style="display:flex"><div style="{prompt}">In [4]:</div><div style="{cell}">{escape(code)}</div></div>'
        f'<div style="display:flex;margin-top:8px"><div style="{prompt}">Out[4]:</div>'
        f'<div style="overflow:hidden">{shown}</div></div></div>',
    )


def _of_html(page: Page, html: str) -> bytes:
    page.goto("about:blank")  # a report forbids styles of others
    page.set_viewport_size({"width": WIDTH, "height": 900})
    page.set_content(f"<!doctype html><meta charset=utf-8><body style='margin:0'>{html}")
    page.wait_for_timeout(300)
    return page.locator("#shown").screenshot()


def _histogram() -> bytes:
    """Return the plot of a node's times."""
    mpl.use("agg")
    snapshot = cprofiling.Snapshot.from_bytes(Path("after.cprof").read_bytes())
    figure, axes = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
    snapshot.histogram("pack", "serve").plot(ax=axes)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=100, facecolor="white")
    plt.close(figure)
    return out.getvalue()


if __name__ == "__main__":
    main()
