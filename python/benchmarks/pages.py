"""How long HTML reports take to open in a Chromium without a window, and how large they are.

``python python/benchmarks/pages.py`` records 100,000 spans on 8 threads, and opens the report five times, each in a
profile of its own, until all of it is drawn. It prints the figures, and the exit status tells whether the slowest
opening took less than 3 s, and a report without data is smaller than 500 KB. Needs the extra ``[report]``, playwright
and a Chromium.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cprofiling as cp

OPEN_BAR_S = 3.0
SIZE_BAR = 500_000
OPENINGS = 5
INSIDE = 9
_DRAWN = """document.documentElement.dataset.ready === 'yes'
    && new Promise(next => requestAnimationFrame(() => requestAnimationFrame(() => next(true))))"""


def recorded(spans: int, threads: int) -> cp.profile:
    """Return a recording of so many spans: batches of nine steps."""

    def work() -> None:
        for _ in range(spans // threads // (INSIDE + 1)):
            with cp.record("batch"):
                for _ in range(INSIDE):
                    with cp.record("step"):
                        pass

    with cp.profile(operators=False) as profile:
        workers = [threading.Thread(target=work, name=f"worker {number}") for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return profile


def seconds_to_open(path: Path) -> list[float]:
    """Return how long each opening of a page took, until it was drawn."""
    from playwright.sync_api import sync_playwright

    executable = shutil.which("chromium") or shutil.which("google-chrome")
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    took = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=arguments)
        for _ in range(OPENINGS):
            page = browser.new_page(viewport={"width": 1600, "height": 1000})
            begin = time.monotonic()
            page.goto(path.as_uri())
            page.wait_for_function(_DRAWN)
            took.append(time.monotonic() - begin)
            page.close()
        browser.close()
    return took


def main() -> int:
    """Run the check and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=8)
    options = parser.parse_args()
    profile = recorded(options.spans, options.threads)
    begin = time.monotonic()
    page = profile.to_html()
    figures: dict[str, Any] = {
        "spans": len(profile.events()),
        "made_s": time.monotonic() - begin,
        "bytes": len(page.encode()),
        "bytes_without_data": len(cp.Profiler().snapshot().to_html().encode()),
    }
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_text(page, encoding="utf-8")
        figures["open_s"] = seconds_to_open(path)
    print(json.dumps(figures))
    return 0 if max(figures["open_s"]) < OPEN_BAR_S and figures["bytes_without_data"] < SIZE_BAR else 1


if __name__ == "__main__":
    sys.exit(main())
