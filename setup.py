"""Builds the extension: the core in cprofiling/ and the CPython binding in csrc/. All else is in pyproject.toml."""

import os
import runpy
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatch
from importlib import metadata
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import setuptools
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

# Of a checkout, what was not made in it.
KEPT = (
    ".ci/*",
    ".clang-*",
    ".editorconfig",
    ".gitignore",
    ".github/**/*",
    ".pre-commit-config.yaml",
    "c*/**/*.[ch]",
    "python/**/*",
    "tests/**/*",
)
MADE = ("__pycache__", ".*_cache", ".hypothesis", "*.egg-info", "*.so", "*.py[co]", "*.gc??")


class SourceDistribution(sdist):
    """Has every file of a checkout, the tests among them: whoever packages it anew has a use for them."""

    def make_distribution(self) -> None:
        """Add what setuptools does not look for."""
        found = [path for pattern in KEPT for path in Path().glob(pattern) if path.is_file()]
        self.filelist.extend([str(path) for path in found if not any(map(is_made, path.parts))])
        self.filelist.sort()
        self.filelist.remove_duplicates()
        super().make_distribution()


class MarkedPackage(build_py):
    """Has no module of an earlier build, and says which sources its extension is built from."""

    def run(self) -> None:
        """Begin with the built extensions only, and put the build in place of None."""
        for old in Path(self.build_lib, "cprofiling").rglob("*"):
            if old.is_file() and old.suffix != ".so":
                old.unlink()
        super().run()
        built = Path(self.build_lib, "cprofiling", "_build.py")
        if built.is_file() and not self.editable_mode:
            text = built.read_text(encoding="utf-8")
            built.write_text(text.replace("ID: str | None = None", f'ID: str | None = "{BUILD}"'), encoding="utf-8")


class ParallelBuild(build_ext):
    """Compile as many files at once as there are processors."""

    def build_extensions(self) -> None:
        """Have the compiler work in threads."""
        compile_files = self.compiler.compile

        def compile_each(sources: list[str], **options: Any) -> list[str]:
            def compile_one(file: str) -> list[str]:
                told = [("CPROF_BUILD", f'"{BUILD}"'), ("CPROF_NVTX", f'"{nvtx_origin()}"')]
                macros = told if file == "csrc/module.c" else []
                return compile_files([file], **options | {"macros": [*(options["macros"] or []), *macros]})

            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
                return list(chain.from_iterable(pool.map(compile_one, sources)))

        self.compiler.compile = compile_each
        if not self.inplace:  # where nobody debugs it: what is installed elsewhere knows no folder of this machine
            flags = ["-g0", f"-ffile-prefix-map={Path.cwd()}=."]
            self.extensions[0].extra_compile_args += [] if os.environ.get("CPROFILING_SANITIZE") else flags
            linker = [word for word in self.compiler.linker_so if not word.startswith("-Wl,-rpath")]
            self.compiler.set_executables(linker_so=linker)
        super().build_extensions()


def is_made(name: str) -> bool:
    """Whether a file or folder of this name comes from building or testing."""
    return any(fnmatch(name, pattern) for pattern in MADE)


def nvtx_include() -> str | None:
    """The folder of NVTX's headers, which are all that is needed of it: that of a wheel, or of a CUDA toolkit."""
    wheels = find_spec("nvidia")
    homes = [home for place in (wheels and wheels.submodule_search_locations) or () for home in Path(place).glob("*")]
    homes = [*sorted(homes, reverse=True), Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda")]
    return next((str(home / "include") for home in homes if (home / "include/nvtx3/nvToolsExt.h").is_file()), None)


def nvtx_origin() -> str:
    """Say whose headers of NVTX are built in, without a folder of this machine."""
    if (include := nvtx_include()) is None:
        return "without NVTX"
    for wheel in ("nvidia-nvtx", "nvidia-nvtx-cu13", "nvidia-nvtx-cu12", "nvidia-nvtx-cu11"):
        with suppress(metadata.PackageNotFoundError):
            found = metadata.distribution(wheel)
            if Path(include).is_relative_to(str(found.locate_file("nvidia"))):
                return f"NVTX of {wheel} {found.version}"
    return "NVTX of a CUDA toolkit"


BUILD = runpy.run_path("python/cprofiling/_build.py")["of_sources"](".")
compile_args = ["-std=c11", "-O3", "-fvisibility=hidden", "-ffp-contract=off", "-fno-semantic-interposition"]
link_args: list[str] = []
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    compile_args.append("-DCPROF_STRIPES=8")  # threads that count the same node at the same time
if include := nvtx_include():
    compile_args += ["-isystem", include]  # its warnings are not ours
if os.environ.get("CPROFILING_WERROR"):
    compile_args += ["-Wall", "-Wextra", "-Wshadow", "-Werror"]
if sanitizers := os.environ.get("CPROFILING_SANITIZE"):
    flags = [f"-fsanitize={sanitizers}", "-fno-omit-frame-pointer", "-g", "-O1"]
    compile_args += flags
    link_args += flags
if os.environ.get("CPROFILING_COVERAGE"):
    compile_args += ["--coverage", "-O0", "-g"]
    link_args += ["--coverage"]

setup(
    # Before setuptools 77 the one was not known, and since then the other is no longer meant for it.
    **{"license_expression" if int(setuptools.__version__.split(".")[0]) >= 77 else "license": "MIT"},
    cmdclass={"build_ext": ParallelBuild, "build_py": MarkedPackage, "sdist": SourceDistribution},
    ext_modules=[
        Extension(
            "cprofiling._core",
            sources=[*map(str, sorted(Path().glob("c*/**/*.c")))],
            depends=[*map(str, sorted(Path().glob("c*/**/*.h"))), "python/cprofiling/_core.pyi"],
            include_dirs=["."],
            extra_compile_args=compile_args,
            extra_link_args=link_args,
        )
    ],
)
