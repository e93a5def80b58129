"""Code in documents runs, links lead somewhere, and every public name is described."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import io
import re
import shlex
import subprocess
import sys
import textwrap
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

import cprofiling
import documents
from cprofiling.commands import main
from cprofiling.commands.completion import commands_of
from document_runs import environment, run_python, run_shell
from documents import DOCS, DOCUMENTS, PAGES, ROOT, Block, blocks, blocks_of, commands_in, is_shown

# Modules in lists of names, which the pages describe in words.
MODULES = {"cprofiling.server.profiling_pb2", "cprofiling.server.profiling_pb2_grpc"}
RUN_TAGS = ("python", "bash")
SHOWN_TAGS = {"python", "py", "bash", "sh", "text", "yaml", "toml", "json", "promql", "console"}


# ---- surroundings that incomplete examples need to run

# A group of this process alone.
_GROUP = """
import torch.distributed as dist
import cprofiling
dist.init_process_group("gloo", store=dist.FileStore("store", 1), rank=0, world_size=1)
profiler = cprofiling.Profiler()
profiler.set_profiling(True)
profiler.record("inference", "denoise", 2.0)
"""
_AFTER_GROUP = """
assert [row.count for row in merged.snapshot.stats()] == [1]
dist.destroy_process_group()
"""
# The pipeline of the example, trained for one turn.
_CUVIS = f"""
import functools, logging, runpy
example = runpy.run_path({str(ROOT / "python" / "examples" / "cuvis_pipeline.py")!r})
globals().update(example)
logger.remove()
for name in ("lightning", "lightning_fabric", "pytorch_lightning", "lightning.fabric", "lightning.pytorch"):
    logging.getLogger(name).setLevel(logging.ERROR)
config = TrainingConfig(max_epochs=1, accelerator="cpu", enable_progress_bar=False, num_sanity_val_steps=0)
config.default_root_dir = "."
GradientTrainer = functools.partial(GradientTrainer, training_config=config)
data = Digits()
pipeline, loss = build()
"""
_CUVIS_IMPORTS = ("cuvis_ai_core", "pytorch_lightning", "sklearn")
# Libraries of functions that are as native as need be, and what calls them.
_LIBRARIES = {
    "torchfx/__init__.py": "",
    "torchfx/_ops.py": "def parallel_iir_forward(): pass\n",
    "mypkg/__init__.py": "",
    "mypkg/native.py": "def filter(): pass\n",
}
_FIXTURES = """
import sys, types
import pytest
import mypkg.native
import torchfx._ops

class Wave:
    def __or__(self, other):
        return self

    @property
    def ys(self):
        torchfx._ops.parallel_iir_forward()

@pytest.fixture
def wave():
    return Wave()
"""
_NAMES = """
import mypkg.native
chain = frame = None
pipeline = lambda frame: [mypkg.native.filter() for _ in range(3)]
old_filter = new_filter = lambda: sum(range(1000))
"""


# A shell as notebooks have it.
_NOTEBOOK = """
import os, sys, warnings
sys.stderr = sys.stdout  # bars of progress
os.environ["IPYTHONDIR"] = {folder!r}
os.environ["MPLBACKEND"] = "agg"
warnings.simplefilter("ignore")
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in {cells!r}:
    shell.run_cell(cell).raise_error()
"""


def _in_group(code: str, folder: Path) -> None:
    (folder / "stats").mkdir()
    output = _printed(_GROUP + code + _AFTER_GROUP)
    assert output.startswith("{}\n")
    assert "denoise" in output
    assert list((folder / "stats").iterdir())


def _in_cuvis(code: str, folder: Path) -> None:
    for name in _CUVIS_IMPORTS:
        pytest.importorskip(name)
    from cprofiling.integrations import cuvis

    try:
        output = _printed(_CUVIS + code)
    finally:
        cuvis.uninstall()
    assert "Profiling Summary" in output
    assert output.splitlines()[-1].endswith(" 2")  # were skipped


def _printed(code: str) -> str:
    """Run code in this process, and return its output."""
    hook = sys.excepthook  # a process group puts one of its own in its place
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()) as output:
            warnings.simplefilter("ignore")  # of what these packages themselves use
            exec(code, {"__name__": "__main__"})
    finally:
        sys.excepthook = hook
    return output.getvalue()


def in_notebook(cells: list[str], folder: Path) -> None:
    """Run cells of a notebook, one after the other."""
    pytest.importorskip("IPython")
    run_python(_NOTEBOOK.format(folder=str(folder), cells=cells), folder)


def _in_pytest(code: str, folder: Path) -> None:
    pytest.importorskip("torch")
    for name, content in _LIBRARIES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    (folder / "conftest.py").write_text(_FIXTURES)
    (folder / "test_readme.py").write_text(textwrap.dedent(_NAMES) + code)
    assert "2 passed" in run_shell("python -m pytest -q -p no:cacheprovider test_readme.py", folder)


def _as_program(*packages: str) -> Callable[[str, Path], str]:
    def run(code: str, folder: Path) -> str:
        for package in packages:
            pytest.importorskip(package)
        (folder / "program.py").write_text(code)
        quiet = "PYTHONWARNINGS=ignore RAY_AUTH_MODE=disabled"
        return run_shell(f"{quiet} python program.py 2>/dev/null", folder)

    return run


SURROUNDINGS: dict[tuple[str, str], Callable[[str, Path], str | None]] = {
    ("python/docs/pages/guides/many-ranks.md", "While they run"): _in_group,
    ("python/docs/pages/guides/cuvis.md", "Pipelines of cuvis-ai-core"): _in_cuvis,
    ("python/docs/pages/guides/ci.md", "The marker and the fixtures"): _in_pytest,
    ("python/docs/pages/guides/joblib.md", "joblib"): _as_program("joblib"),
    ("python/docs/pages/guides/ray-spark.md", "Ray"): _as_program("ray"),
    ("python/docs/pages/guides/trainer.md", "The Trainer"): _as_program("pytorch_lightning"),
}


# ---- code and commands


def test_all_fences_are_closed_and_tagged() -> None:
    for document in DOCUMENTS:
        fences = re.findall(r"^```", documents.text_of(document), re.MULTILINE)
        assert len(fences) == 2 * len(blocks_of(document)), document
        assert {block.tag for block in blocks_of(document)} <= SHOWN_TAGS, document


@pytest.mark.parametrize("page", [document for document in DOCUMENTS if blocks_of(document)], ids=documents.name_of)
def test_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    for block in blocks_of(page):
        if block.tag == "python":
            output = run_python(block.content, folder, file=block.title)
        elif block.tag == "bash":
            output = run_shell(block.content, folder)
        elif block.title:
            (folder / block.title).write_text(block.content)
            continue
        else:
            continue
        assert is_shown(output, block.shown), (str(block), output)


@pytest.mark.slow
@pytest.mark.parametrize("block", [block for block in blocks("py") if not block.title], ids=str)
def test_what_needs_more_runs_with_it(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = cells_up_to(block)
    if cells:
        in_notebook(cells, tmp_path)
        return
    for name in sorted(foreign_modules(block.content)):
        pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    about = SURROUNDINGS.get((documents.name_of(block.document), documents.section(block.document, block.line)))
    if about is not None:
        output = about(block.content, tmp_path)
        assert output is None or is_shown(output, block.shown), output
        return
    capsys.readouterr()
    exec(compile(block.content, str(block), "exec"), {"__name__": "__main__"})
    output = capsys.readouterr().out
    assert is_shown(output, block.shown), output


def cells_up_to(block: Block) -> list[str]:
    """Return the notebook cells of a section up to a block, if any has a magic."""
    here = documents.section(block.document, block.line)
    cells = [
        other.content
        for other in blocks_of(block.document)
        if other.tag == "py" and documents.section(block.document, other.line) == here
    ]
    last = cells.index(block.content)
    return cells[: last + 1] if any(cell.startswith("%") for cell in cells) else []


def foreign_modules(code: str) -> set[str]:
    """Return the top-level packages of others that code imports."""
    named = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(code))
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import)
            else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        )
    }  # fmt: skip
    needed = {"torch_distributed": "torch", "cuvis": "cuvis_ai_core", "torch": "torch", "server": "grpc"}
    ours = re.findall(r"cprofiling(?:\.integrations)?(?: import|\.)\s?(\w+)", code)
    return (named - set(sys.stdlib_module_names) - {"cprofiling"}) | {needed[name] for name in ours if name in needed}


def test_surroundings_are_of_blocks_that_are_there() -> None:
    places = {
        (documents.name_of(block.document), documents.section(block.document, block.line)) for block in blocks("py")
    }
    assert set(SURROUNDINGS) <= places


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Yield our command lines in all shell blocks, with their places."""
    for block in blocks(*documents.SHELL_TAGS):
        for line in commands_in(block):
            words = shlex.split(line, comments=True)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words.pop(0)
            if words and words[0].rpartition("/")[2] == "cprofiling":
                yield f"{block} {' '.join(words)}", words[1:]
            elif words[1:3] == ["-m", "cprofiling"]:
                yield f"{block} {' '.join(words)}", words[3:]


@pytest.mark.parametrize("arguments", [pytest.param(words, id=place) for place, words in command_lines()])
def test_commands_are_those_that_there_are(arguments: list[str]) -> None:
    assert main.parser().parse_args(before_pipes(arguments)).command == arguments[0]


def before_pipes(words: list[str]) -> list[str]:
    """Return the words of a command line up to a pipe or another command."""
    ends = [number for number, word in enumerate(words) if word in ("|", ">", ">>", "&", ";", "||")]
    return words[: ends[0]] if ends else words


def test_commands_in_sentences_have_the_options_that_there_are() -> None:
    known = commands_of(main.parser())
    for document in DOCUMENTS:
        for name, rest in re.findall(r"`cprofiling ([a-z]+)([^`]*)`", documents.prose_of(document)):
            assert name in known, (document, name)
            own = rest.partition(" -- ")[0]
            options = set(re.findall(r"(?<=\s)--?[a-z][\w-]*", own))
            assert options <= set(known[name]._option_string_actions), (document, name, rest)


def test_extras_are_those_that_there_are() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[project.optional-dependencies]\n")[2]
    extras = set(re.findall(r"^(\w+) = \[", text.partition("\n[")[0], re.MULTILINE))
    for document in DOCUMENTS:
        for named in re.findall(r'"(?:\.|cprofiling)\[([\w,]+)\]"', documents.text_of(document)):
            assert set(named.split(",")) <= extras, (document, named)


def test_licences_are_those_of_the_packages_that_the_extras_name() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[project.optional-dependencies]\n")[2]
    listed = re.sub("#.*", "", text.partition("\n\n[")[0])
    wanted = {
        extra: set(re.findall(r'"([\w-]+)[^"]*"', packages)) - {"cprofiling"}
        for extra, packages in re.findall(r"^(\w+) = \[(.*?)\] *$", listed, re.MULTILINE | re.DOTALL)
    }
    page = (documents.PAGES_FOLDER / "development/licences.md").read_text(encoding="utf-8")
    told: dict[str, set[str]] = {}
    families = ("Apache", "BSD", "MIT", "MPL", "ISC", "GPL", "NVIDIA")
    for extras, packages in re.findall(r"^\| (`.*?`) \| (.*) \|$", page, re.MULTILINE):
        stated = dict(re.findall(r"([\w-]+) \(([^)]+)\)(?:, |$)", packages))
        told |= {extra: set(stated) for extra in re.findall(r"`(\w+)`", extras)}
        for package, licence in stated.items():
            with contextlib.suppress(metadata.PackageNotFoundError):
                about = metadata.metadata(package)
                fields = ("License-Expression", "License", "Classifier")
                named = [text for field in fields for text in about.get_all(field) or ()]
                words = " ".join(str(each)[:200] for each in named if each and "Operating" not in each)
                found = {family for family in families if family in words}
                ways = [{family for family in families if family in way} for way in licence.split(";")]  # by version
                assert not found or any(way <= found for way in ways), package
    assert told == wanted


# ---- links


@pytest.mark.parametrize("document", DOCUMENTS, ids=documents.name_of)
def test_links_lead_somewhere(document: Path) -> None:
    for link in documents.links_of(document):
        if urlsplit(link).scheme:
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.is_relative_to(ROOT if document == documents.README else documents.PAGES_FOLDER), link
        assert target.exists(), link
        if anchor:
            assert anchor in documents.anchors_of(target), link


@pytest.mark.lint
@pytest.mark.parametrize("document", DOCUMENTS, ids=documents.name_of)
def test_files_of_the_repository_are_there(document: Path) -> None:
    paths = re.findall(r"`((?:cprofiling|csrc|python|tests|\.ci|\.github)/[\w./-]*)`", documents.prose_of(document))
    for path in paths:
        places = [ROOT / path, ROOT / "python" / path, ROOT / f"{path}.c"]
        assert any(place.exists() for place in places) or path.startswith(".ci/work"), path


@pytest.mark.lint
def test_messages_in_troubleshooting_are_in_the_sources() -> None:
    files = (path for room in ("cprofiling", "csrc", "python/cprofiling") for path in (ROOT / room).rglob("*.*"))
    text = "".join(path.read_text(encoding="utf-8") for path in files if path.suffix in {".py", ".c", ".h"})
    sources = re.sub(r"\"\s*\n\s*f?\"", "", text)  # texts that go on in the next line
    page = documents.text_of(documents.PAGES_FOLDER / "guides" / "troubleshooting.md")
    messages = [
        code for row in re.findall(r"^\| (`.*?) \| ", page, re.MULTILINE) for code in re.findall("`(.+?)`", row)
    ]
    parts = [part.strip() for message in messages for part in message.split("...") if part.strip()]
    assert len(parts) > 80
    assert [part for part in parts if part not in sources] == []


def test_the_readme_leads_to_the_documentation() -> None:
    assert "python/docs/pages/index.md" in {link.partition("#")[0] for link in documents.links_of(documents.README)}


def test_every_page_is_in_the_navigation() -> None:
    config = (DOCS / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r": ([\w/-]+\.md)$", config.partition("\nnav:\n")[2], re.MULTILINE)
    assert sorted(listed) == [str(page.relative_to(documents.PAGES_FOLDER)) for page in PAGES]


# ---- the reference


def public_modules() -> list[str]:
    """Return the modules flat in the package, layers, and integrations."""
    package = Path(cprofiling.__path__[0])
    flat = [path.stem for path in package.glob("[!_]*.py")]
    peers = [f"integrations.{path.stem}" for path in (package / "integrations").glob("[!_]*")]
    return ["cprofiling", *sorted(f"cprofiling.{name}" for name in (*flat, "layers", *peers) if has_names(name))]


def has_names(module: str) -> bool:
    path = Path(cprofiling.__path__[0], *module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return file.exists() and "\n__all__ = " in file.read_text(encoding="utf-8")


def in_reference() -> list[str]:
    return [name for page in PAGES for name in documents.names_in(page)]


def imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{error.name or error} is not installed")


def test_the_reference_names_public_modules_only_and_each_name_once() -> None:
    listed = in_reference()
    assert len(listed) == len(set(listed))
    assert {"cprofiling", "cprofiling.layers", "cprofiling.gates", "cprofiling.server"} <= set(public_modules())
    assert {name.rpartition(".")[0] for name in listed} <= set(public_modules())


@pytest.mark.parametrize("name", public_modules())
def test_exported_visible_and_documented_names_are_the_same(name: str) -> None:
    module = imported(name)
    exported = {each for each in module.__all__ if f"{name}.{each}" not in MODULES}
    here = {full.rpartition(".")[2] for full in in_reference() if full.rpartition(".")[0] == name}
    elsewhere = {full.rpartition(".")[2] for full in in_reference()} - here
    aliases = {
        each for each in exported - here if any(getattr(module, each) is getattr(module, other) for other in here)
    }
    assert here <= exported
    assert exported - here <= elsewhere | aliases
    if not name.startswith("cprofiling.integrations."):
        assert dir(module) == sorted(module.__all__)
    for each in exported:
        value = getattr(module, each)
        if inspect.isclass(value) or callable(value):
            assert inspect.getdoc(value), each


def columns_in(heading: str) -> list[str]:
    """Return the columns that a table of their page names."""
    page = documents.text_of(documents.PAGES_FOLDER / "reference" / "columns.md")
    rows = re.findall(r"^\| (`.*?) \|", page.partition(f"## {heading}\n")[2].partition("\n## ")[0], re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def test_the_columns_are_those_of_files() -> None:
    profiler = cprofiling.Profiler()
    profiler.set_profiling(True)
    profiler.record("train", "node", 1.0)
    header = profiler.snapshot().to_csv().splitlines()[0]
    assert columns_in("Statistics") == re.findall(r'"([^"]+)"', header)
    with cprofiling.profile(operators=False) as prof:
        pass
    assert ["row", *columns_in("Recordings")] == re.findall(r'"([^"]+)"', prof.to_csv().splitlines()[0])


def test_every_example_is_on_its_page() -> None:
    page = documents.text_of(documents.PAGES_FOLDER / "start" / "examples.md")
    there = {path.name for path in (ROOT / "python" / "examples").iterdir() if path.suffix in (".py", ".ipynb")}
    assert set(re.findall(r"`(\w+\.(?:py|ipynb))`", page)) == there


def test_every_variable_of_the_environment_is_told_of() -> None:
    package = Path(cprofiling.__path__[0])
    sources = "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    told = "".join(map(documents.text_of, DOCUMENTS))
    variables = set(re.findall(r"[\"'](CPROFILING_[A-Z_]*[A-Z])[\"']", sources))
    inner = {name for name in variables if name.endswith(("_OWNER", "_LIBCUDA", "_LIBCUPTI"))}
    assert {"CPROFILING_OUTPUT_PATH", "CPROFILING_TOKEN"} <= variables
    assert {name for name in variables - inner if name not in told} == set()


# ---- the table of other profilers' names


def equivalents() -> Iterator[tuple[str, list[str]]]:
    """Yield names of other profilers and ours, from the tables about them.

    The names of a table are those of the module that its first column is headed by, if one is.
    """
    pages = ("coming-from.md", "coming-from-pipelines.md", "which-profiler.md")
    prose = "".join(documents.prose_of(documents.PAGES_FOLDER / "start" / page) for page in pages)
    for table in re.findall(r"(?:^\|.*\n)+", prose, re.MULTILINE):
        head, *rows = ([re.findall(r"`([^`]+)`", cell) for cell in line.strip("| ").split(" | ")]
                       for line in table.splitlines())  # fmt: skip
        prefix = "".join(f"{module}." for module in head[0])
        for cells in rows:
            yield from ((f"{prefix}{name}", cells[1]) for name in cells[0])


ROOTS = {"cp": "cprofiling"}


def resolved(text: str) -> object:
    """Return the object of a dotted name, without arguments in brackets."""
    words = re.sub(r"\(.*\)", "", text).split(".")
    words[0] = ROOTS.get(words[0], words[0])
    for number in range(len(words), 0, -1):
        try:
            value: object = importlib.import_module(".".join(words[:number]))
        except ModuleNotFoundError:
            continue
        for word in words[number:]:
            value = getattr(value, word)
        return value
    raise AssertionError(f"{text} is nowhere")


@pytest.mark.filterwarnings("default")  # what is imported warns
@pytest.mark.parametrize(("theirs", "ours"), [pytest.param(theirs, ours, id=theirs) for theirs, ours in equivalents()])
def test_names_of_other_profilers_and_ours_are_there(theirs: str, ours: list[str]) -> None:
    dotted = re.compile(r"[a-z_]\w*(\.\w+)+(\(.*\))?")
    for name in filter(dotted.fullmatch, ours):
        if name.startswith(("cp.", "cprofiling.")):
            resolved(name)
    package = theirs.partition(".")[0]
    if dotted.fullmatch(theirs) and find_spec(package):
        resolved(theirs)


# ---- the site


class Page(HTMLParser):
    """A page with its anchors, its links, and the files that it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        self.anchors |= {has[name] for name in ("id", "name") if name in has}
        if tag == "a" and "href" in has:
            self.links.append(has["href"])
        elif tag == "link":
            self.fetched.append(has.get("href", ""))
        elif "src" in has:
            self.fetched.append(has["src"])


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, with warnings as errors."""
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(DOCS / "mkdocs.yml")]
    done = subprocess.run(
        [*command, "-d", str(folder)], env={**environment(), "NO_MKDOCS_2_WARNING": "1"}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    found = {path: Page(path).fetched for path in site.rglob("*.html")}
    assert len(found) > len(PAGES)
    elsewhere = {str(path): [where for where in fetched if urlsplit(where).netloc] for path, fetched in found.items()}
    assert {path: where for path, where in elsewhere.items() if where} == {}
    for style in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style.read_text(encoding="utf-8")) == []


def test_the_site_has_no_dead_links_inside(site: Path) -> None:
    pages = {path: Page(path) for path in site.rglob("*.html")}
    dead = []
    for path, page in pages.items():
        for link in [*page.links, *page.fetched]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            is_there = target.exists() and (not parts.fragment or unquote(parts.fragment) in pages[target].anchors)
            dead += [] if is_there else [f"{path.relative_to(site)}: {link}"]
    assert dead == []


def test_the_site_has_every_name_of_the_reference(site: Path) -> None:
    inventory = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    names = {line.split(" ")[0] for line in zlib.decompress(inventory).decode().splitlines()}
    assert set(in_reference()) - names == set()


@pytest.mark.slow
def test_the_site_names_no_private_room(site: Path) -> None:
    package = Path(cprofiling.__path__[0])
    rooms = {path.parent.name for path in package.glob("*/__init__.py")} - {"integrations", "layers"}
    private = re.compile(rf"cprofiling\.(?:{'|'.join(rooms)})\.\w+")
    found = {path.name: set(private.findall(path.read_text(encoding="utf-8"))) for path in site.rglob("*.html")}
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.slow
def test_a_browser_that_reads_the_site_asks_for_nothing_else(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    from browser import LIMIT_S, chromium

    executable = chromium()
    if executable is None:
        pytest.skip("not on PATH: chromium")
    asked: list[str] = []
    said: list[str] = []
    with serving(site) as address, playwright.sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        for name in ("index.html", "start/get-started.html", "reference/statistics.html"):
            page.goto(f"{address}/{name}", timeout=LIMIT_S * 1000)
            page.wait_for_load_state("networkidle", timeout=LIMIT_S * 1000)
        page.locator("input.md-search__input").press_sequentially("skip_first_n")
        page.locator(".md-search-result__link").first.wait_for(state="attached", timeout=LIMIT_S * 1000)
        browser.close()
    assert asked
    assert {url for url in asked if not url.startswith((address, "blob:", "data:"))} == set()
    assert said == []


def test_each_failure_scenario_is_named_by_its_tests() -> None:
    page = (documents.PAGES_FOLDER / "development/failures.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z]\d+) \| .* \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) == len({scenario for scenario, _ in rows}) == 98
    for scenario, told in rows:
        files = re.findall(r"`([\w/]+\.(?:py|c))`", told)
        assert files or told.startswith("none: "), scenario
        for file in files if not told.startswith("none: ") else ():
            text = (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
            ranges = re.findall(rf"\b{scenario[0]}(\d+) to {scenario[0]}(\d+)", text)
            is_inside = any(int(first) <= int(scenario[1:]) <= int(last) for first, last in ranges)
            assert is_inside or re.search(rf"\b{scenario}\b", text), (scenario, file)


@pytest.mark.slow
def test_pages_are_two_screens_long_and_nothing_in_them_is_cut(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    from browser import chromium

    executable = chromium()
    if executable is None:
        pytest.skip("not on PATH: chromium")
    lists = ("troubleshooting.html", "coming-from-pipelines.html")  # to look things up
    with playwright.sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page()
        for path in sorted([site / "index.html", *site.glob("start/*.html"), *site.glob("guides/*.html")]):
            page.goto(path.as_uri())
            for width in (1280, 748, 400):
                page.set_viewport_size({"width": width, "height": 900})
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (path.name, width)
                assert page.evaluate(CUT) == [], (path.name, width)
                if width == 1280 and path.name not in lists:
                    assert page.evaluate("document.querySelector('article').offsetHeight") < 2300, path.name
        browser.close()


# What is wider than the room it has, and does not scroll there.
CUT = """[...document.querySelectorAll('article :is(table, pre, img)')].filter(element => {
    for (let around = element; around.tagName !== 'ARTICLE'; around = around.parentElement) {
        if (around.querySelector(':scope > code') || ['auto', 'scroll'].includes(getComputedStyle(around).overflowX)) {
            return false;
        }
    }
    return element.getBoundingClientRect().right > document.documentElement.clientWidth;
}).map(element => element.outerHTML.slice(0, 80))"""


def test_pages_begin_with_a_sentence() -> None:
    for page in PAGES:
        first = documents.text_of(page).split("\n\n")[1]
        assert first[0] in "`[<" or first[0].isupper(), (page, first)
        assert first == "<!-- readme -->" or first.rstrip(":").endswith(".") or first.endswith(":"), (page, first)


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine, and yield the address."""
    handler = partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


def test_the_site_has_the_help_of_each_command(site: Path) -> None:
    text = (site / "reference" / "command.html").read_text(encoding="utf-8")
    assert all(f"usage: cprofiling {name}" in text for name in commands_of(main.parser()))
