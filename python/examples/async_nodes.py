"""Profile coroutines of many tasks, with their active time.

Reads the tables that ship with scikit-learn, and adds up their columns. Needs scikit-learn.
"""

import asyncio
import gzip
from pathlib import Path

import sklearn.datasets

import cprofiling as cp


@cp.profile_node(name="read")
async def read(path: Path) -> bytes:
    """Read a file in a thread; the sample includes awaiting."""
    return await asyncio.to_thread(path.read_bytes)


@cp.profile_node(name="unpack")
def unpack(path: Path, content: bytes) -> str:
    """Return the file's text."""
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()


@cp.profile_node(name="numbers")
async def numbers(text: str) -> list[float]:
    """Return all numbers of the table; let other tasks run between them."""
    found = []
    for count, line in enumerate(text.splitlines()):
        if count % 100 == 0:
            await asyncio.sleep(0)
        for word in line.replace(",", " ").split():
            try:
                found.append(float(word))
            except ValueError:
                continue  # a heading
    return found


async def summarise(path: Path) -> str:
    """Return one line about a table."""
    async with cp.profile_node("table"):
        found = await numbers(unpack(path, await read(path)))
    return f"{path.name}: {len(found)} numbers, sum {sum(found):.1f}"


async def summarise_all(folder: Path) -> list[str]:
    """Return a line about each table; all are read at the same time."""
    return await asyncio.gather(*(summarise(path) for path in sorted(folder.glob("*.csv*"))))


def main() -> None:
    """Print a line about each table, and the times of the nodes."""
    cp.set_profiling(True)
    for line in asyncio.run(summarise_all(Path(sklearn.datasets.__file__).parent / "data")):
        print(line)
    print()
    print(cp.format_profiling_summary(), end="\n\n")
    for row in cp.get_profiling_summary():
        if row.active_total_ms is not None:
            print(f"{row.node_name}: {row.total_ms:.2f} ms in {row.count} calls, {row.active_total_ms:.2f} ms running")


if __name__ == "__main__":
    main()
