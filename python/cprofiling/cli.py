"""The command ``cprofiling``: its arguments, its exit status, and where its output goes.

Results go to stdout, everything else to stderr. The exit status is 0, or 1 after a failure, which one line on stderr
explains, or 2 for arguments that make no sense; that of ``run`` is the program's, and ``compare`` has 3 for what
became slower.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

EXIT_FAILURE = 1
DEMO_FRAMES, DEMO_BATCH_SIZE, DEMO_SKIPS = 600, 32, 3
REPORT_ROWS = 20
MIN_CHANGE = 2.0
NCU_SET = "basic"
DEMO_PACKAGES = ("numpy", "scipy", "sklearn")
INT64_MAX = 2**63 - 1


class CommandError(Exception):
    """A failure that the user should read about in one line; ``status`` is the exit status."""

    def __init__(self, message: str, status: int = EXIT_FAILURE) -> None:
        """Take over message and status."""
        super().__init__(message)
        self.status = status


class VersionAction(argparse.Action):
    """Prints the version of the installed package, which is looked up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_ignored: object) -> None:
        """Print it and exit. CommandError where the package was never installed."""
        from importlib import metadata

        try:
            version = metadata.version("cprofiling")
        except metadata.PackageNotFoundError:
            raise CommandError("the version is not known, as the package was never installed") from None
        write(f"cprofiling {version}")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with ``arguments`` (default: those of the process) and return its exit status.

    Raises SystemExit with status 2 for wrong arguments, and with status 0 after ``--help`` and ``--version``. The
    command ``run`` does not return: see ``runner.prepare``.
    """
    own = list(sys.argv[1:] if arguments is None else arguments)
    program: list[str] = []
    try:
        if own[:1] == ["run"]:
            from cprofiling import runner

            own[1:], program = runner.split(own[1:])
        elif own[:1] in (["ncu"], ["nsys"]):
            from cprofiling import deep_dive

            leave_no_trace()
            own[1:], program = deep_dive.split(own[1:])
        elif own[:1] != ["demo"]:
            leave_no_trace()
        options = parser().parse_args(own, argparse.Namespace(program=program, status=0))
        write(options.run(options))
        status: int = options.status
    except CommandError as error:
        return fail(str(error), error.status)
    except KeyboardInterrupt:
        return fail("interrupted")
    return status


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line. Each command sets ``run``, which returns the text to print.

    It may set ``status``, the exit status after that.
    """
    made = argparse.ArgumentParser(prog="cprofiling", description="The per-node profiler for Python pipelines.")
    made.add_argument("--version", action=VersionAction, nargs=0, help="print the version and exit")
    commands = made.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    add_demo(commands)
    add_run(commands)
    add_report(commands)
    add_compare(commands)
    add_ncu(commands)
    add_nsys(commands)
    add_doctor(commands)
    add_harness(commands)

    add_merge(commands)
    return made


def leave_no_trace() -> None:
    """Neither write a trace of this command where the environment asks for one, nor tell of a window for captures.

    The trace may be the very file to be read.
    """
    capture = sys.modules.get("cprofiling.capture")  # these two are not there unless the environment asks
    if capture is not None:
        capture.say_nothing()
    autostart = sys.modules.get("cprofiling.autostart")
    if autostart is not None and autostart.Automatic.current is not None:
        if autostart.Automatic.current.output.is_owner:
            os.environ.pop(autostart.OWNER, None)  # a program that this process becomes, or starts, may have it
        autostart.Automatic.current.cancel()


def add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``demo``."""
    text = "Train, validate and use a classifier of handwritten digits, and print where the time went."
    made = commands.add_parser("demo", help="profile a real pipeline", description=text)
    made.add_argument(
        "--frames",
        type=whole_number(25, 1_000_000),
        default=DEMO_FRAMES,
        metavar="N",
        help="batches to send through the pipeline in all stages together, at least 25 (default: %(default)s)",
    )
    made.add_argument(
        "--batch-size",
        type=whole_number(1, 10_000),
        default=DEMO_BATCH_SIZE,
        metavar="N",
        help="digits in a batch (default: %(default)s)",
    )
    made.add_argument(
        "--skip-first-n",
        type=whole_number(0, INT64_MAX),
        default=DEMO_SKIPS,
        metavar="N",
        help="first calls of each node to leave out of the statistics (default: %(default)s)",
    )
    made.add_argument(
        "--seed",
        type=whole_number(0, 2**32 - 1),
        default=0,
        metavar="N",
        help="of everything random: equal seeds give equal accuracies (default: %(default)s)",
    )
    made.set_defaults(run=demo)


def add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``run``. What comes after its own options is not parsed here."""
    made = commands.add_parser(
        "run",
        help="record a program",
        usage="%(prog)s [-h] [-o FILE] [-n GLOB]... [--] (-m MODULE | SCRIPT) [ARGUMENT]...",
        description="Run a script, a folder or archive with a __main__.py, or a module as Python does, and record it. "
        "PyTorch's operators are not recorded: that needs cprofiling.profile() in the program.",
        epilog="example: cprofiling run -n 'mypkg.stages:*.forward' -n '__main__:load' train.py --epochs 3",
        allow_abbrev=False,
    )
    made.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where the trace goes; .gz compresses it, .pftrace is Perfetto's format, which needs the package perfetto "
        "(default: trace.json)",
    )
    made.add_argument(
        "-n",
        "--node",
        action="append",
        type=node_glob,
        default=[],
        metavar="GLOB",
        help="functions to record as nodes, beside those that the program itself declares: MODULE:FUNCTION, both with "
        "wildcards, the function's name being the qualified one; or MODULE for all of its functions. __main__ is "
        "the program itself. A module that is loaded before the program begins, as Python's start and cprofiling need "
        "some, is meant by its exact name only. May be given several times",
    )
    made.set_defaults(run=run_program, refuse=made.error)


def add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``report``."""
    text = "Print where the time went in a recording: a Chrome trace of this package, of PyTorch or of Kineto."
    made = commands.add_parser("report", help="print what a trace shows", description=text)
    made.add_argument("file", metavar="FILE", help="a trace, .json or .json.gz")
    made.add_argument("--sort-by", metavar="KEY", help="the figure by which the table of averages is sorted")
    made.add_argument(
        "--limit",
        type=whole_number(1, INT64_MAX),
        default=REPORT_ROWS,
        metavar="N",
        help="the most rows of each table (default: %(default)s)",
    )
    made.add_argument("--group-by-node", action="store_true", help="tell apart what runs in different nodes")
    made.set_defaults(run=report)


def add_compare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``compare``."""
    made = commands.add_parser(
        "compare",
        help="compare two timing reports",
        description="Print which stages became slower or faster from one timing report (timing.json) to another. Exit "
        "status: 0 if nothing is slower, 3 if a stage or the total is slower or a stage is missing in the new report, "
        "1 if they cannot be compared or no stage can be judged, 2 for wrong arguments.",
        epilog="example: cprofiling compare --format md main/timing.json branch/timing.json",
    )
    made.add_argument("baseline", metavar="BASELINE", help="the timing report to compare with")
    made.add_argument("new", metavar="NEW", help="the timing report to judge")
    for side in ("baseline", "new"):
        made.add_argument(
            f"--{side}",
            action="append",
            default=[],
            dest=f"more_{side}",
            metavar="FILE",
            help=f"a further run of {side.upper()}: several tell the noise from run to run. May be given several times",
        )
    made.add_argument(
        "--min-change",
        type=percentage,
        default=MIN_CHANGE,
        metavar="PCT",
        help="the smallest change that counts, in percent of the baseline (default: %(default)g)",
    )
    made.add_argument(
        "--format", choices=("text", "md", "json"), default="text", help="what to print (default: %(default)s)"
    )
    made.set_defaults(run=compare)


def percentage(text: str) -> float:
    """Return a number from 0 to 1e6; for argparse, which refuses all else."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e6:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1000000, got {text!r}")
    return value


def add_ncu(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``ncu``. The program is not parsed here."""
    made = commands.add_parser(
        "ncu",
        help="measure the kernels of a node with NVIDIA Nsight Compute",
        usage="%(prog)s [-h] --node NAME [--skip N] [--count N] [--set SET] [--output FILE] [--run] [--] PROGRAM "
        "[ARGUMENT]...\n       %(prog)s [-h] --analyze FILE",
        description="Print the command line by which ncu measures the kernels in chosen calls of a node, or run it; "
        "or print what limits the kernels that it measured.",
        epilog="example: cprofiling ncu --node encoder --skip 10 -- python app.py --epochs 1",
        allow_abbrev=False,
    )
    add_window(made)
    made.add_argument(
        "--set",
        type=not_empty,
        help=f"ncu's set of metrics: basic, detailed, full (default: {NCU_SET})",
    )
    made.add_argument(
        "--output",
        type=not_empty,
        metavar="FILE",
        help="ncu's CSV file; it is replaced (default: the node's name, .csv)",
    )
    made.add_argument(
        "--analyze",
        type=not_empty,
        metavar="FILE",
        help="print the kernels of a report, CSV or .ncu-rep, with verdicts",
    )
    made.set_defaults(run=ncu, refuse=made.error)


def add_nsys(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``nsys``. The program is not parsed here."""
    made = commands.add_parser(
        "nsys",
        help="record the calls of a node with NVIDIA Nsight Systems",
        usage="%(prog)s [-h] --node NAME [--skip N] [--count N] [--output FILE] [--run] [--] PROGRAM [ARGUMENT]...",
        description="Print the command line by which nsys records chosen calls of a node, or run it.",
        epilog="example: cprofiling nsys --node encoder --skip 10 -- python app.py --epochs 1",
        allow_abbrev=False,
    )
    add_window(made)
    made.add_argument(
        "--output",
        type=not_empty,
        metavar="FILE",
        help="nsys's report, without the suffix (default: the node's name)",
    )
    made.set_defaults(run=nsys, refuse=made.error)


def add_window(made: argparse.ArgumentParser) -> None:
    """Add the options that say which calls are meant."""
    made.add_argument("--node", type=node_name, metavar="NAME", help="the node, by its exact name; required")
    made.add_argument(
        "--skip",
        type=whole_number(0, INT64_MAX),
        metavar="N",
        help="first calls of the node to pass by, such as those that warm up (default: 0)",
    )
    made.add_argument(
        "--count",
        type=whole_number(1, INT64_MAX),
        metavar="N",
        help="calls to measure after them (default: 1)",
    )
    made.add_argument("--run", action="store_true", dest="execute", help="run it; the exit status is the tool's")


def node_name(text: str) -> str:
    """Return the name of a node as it is; for argparse, which refuses what is none."""
    from cprofiling.deep_dive import checked_node

    try:
        return checked_node(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def not_empty(text: str) -> str:
    """Return a text as it is; for argparse, which refuses an empty one."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"expected a text that is not empty and has no NUL, got {text!a}")
    return text


def add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``doctor``."""
    text = "Print what of the profiler works on this machine, and for what does not, why, and what to do about it."
    made = commands.add_parser("doctor", help="tell what works here", description=text)
    made.add_argument("--json", action="store_true", help="print all of it as JSON")
    made.set_defaults(run=doctor)


def add_harness(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``harness``."""
    made = commands.add_parser(
        "harness",
        help="profile one stage of a pipeline alone",
        description="Run one stage under the profiler, with inputs made up from its recorded signature, and write a "
        "trace, a breakdown by kernels and a program that does the same.",
        epilog="example: cprofiling harness --signature timing_io_signature.json --stage denoise --factory app:stage",
    )
    made.add_argument("--signature", required=True, type=not_empty, metavar="FILE", help="the signatures of the stages")
    made.add_argument("--list", action="store_true", help="print the stages and their inputs, and run none")
    made.add_argument("--stage", metavar="NAME", help="the stage, by its exact name")
    made.add_argument(
        "--factory",
        type=not_empty,
        metavar="MODULE:FUNCTION",
        help="a function that is called without arguments and returns the stage; modules are found in the current "
        "directory, too",
    )
    made.add_argument(
        "--warmup",
        type=whole_number(0, 1_000_000),
        default=1,
        metavar="N",
        help="runs before the recorded ones (default: %(default)s)",
    )
    made.add_argument(
        "--profile-steps",
        type=whole_number(1, 1_000_000),
        default=1,
        metavar="N",
        help="recorded runs (default: %(default)s)",
    )
    made.add_argument(
        "--output-dir",
        type=not_empty,
        metavar="DIR",
        help="where the files go (default: work_dirs/profiler_output/PIPELINE/TIME)",
    )
    made.add_argument(
        "--entry",
        type=not_empty,
        metavar="NAME",
        help="the method to run (default: profile_step where the stage has it, a single denoising step where it has a "
        "dit and a scheduler, else process)",
    )
    made.set_defaults(run=harness, refuse=made.error)


def add_merge(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``merge``."""
    text = "Merge what many ranks wrote: statistics, timing reports or traces. The order of the files means nothing."
    made = commands.add_parser(
        "merge",
        help="merge what many ranks wrote",
        description=text,
        epilog="What cannot be merged, and ranks that are missing, are named on stderr; then the exit status is 1.",
    )
    made.add_argument("files", metavar="FILE", nargs="+", type=not_empty, help="a file of one rank")
    made.add_argument("-o", "--output", type=not_empty, metavar="OUT", help="where to write the merged file")
    made.add_argument(
        "--expect",
        type=whole_number(1, INT64_MAX),
        metavar="N",
        help="how many ranks there should be (default: as the files say)",
    )
    made.set_defaults(run=merge)


def node_glob(text: str) -> str:
    """Return a pattern for ``-n`` as it is; for argparse, which refuses what is none."""
    from cprofiling.node_patterns import Pattern

    try:
        return Pattern(text).text
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """Return a converter of arguments for argparse, which refuses all but the integers from ``low`` to ``high``."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"expected a whole number from {low} to {high}, got {text!r}")
        return value

    return convert


def demo(options: argparse.Namespace) -> str:
    """Run the demo and return its report."""
    try:
        from cprofiling.demo import run_demo
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in DEMO_PACKAGES:
            raise
        raise CommandError('the demo needs scikit-learn: pip install "cprofiling[demo]"') from None
    return run_demo(
        frames=options.frames,
        batch_size=options.batch_size,
        skip_first_n=options.skip_first_n,
        seed=options.seed,
    )


def run_program(options: argparse.Namespace) -> str:
    """Run and record a program; it begins when what is raised here has ended this command."""
    from cprofiling import runner

    if not options.program:
        options.refuse("a program is required: SCRIPT or -m MODULE")
    try:
        launch = runner.prepare(options.output, options.node, options.program)
    except runner.CannotRunError as error:
        raise CommandError(str(error), error.status) from None
    raise launch


def report(options: argparse.Namespace) -> str:
    """Return the report on a trace."""
    from cprofiling.trace_report import ReportError, report_on

    try:
        return report_on(options.file, options.sort_by, options.limit, group_by_node=options.group_by_node)
    except ReportError as error:
        raise CommandError(str(error)) from None


def compare(options: argparse.Namespace) -> str:
    """Return what became of the times of a timing report's stages in another one."""
    from cprofiling.format import shown_text
    from cprofiling.stages.compare import compare_timing_reports

    baseline, new = [options.baseline, *options.more_baseline], [options.new, *options.more_new]
    try:
        found = compare_timing_reports(baseline, new, min_change_pct=options.min_change)
    except (OSError, ValueError) as error:
        raise CommandError(shown_text("error", str(error))) from None
    options.status = found.exit_status
    told = {"text": found.to_text, "md": found.__str__, "json": found.to_json}[options.format]()
    if options.status == EXIT_FAILURE:
        write(told)
        raise CommandError("no stage can be judged")
    return told


def ncu(options: argparse.Namespace) -> str:
    """Return the command line of ncu, or run it, or return what is in a report of it."""
    from cprofiling import deep_dive

    if options.analyze is None:
        check_window(options)
        metrics = options.set or NCU_SET
        return deep_dived(options, deep_dive.ncu_command(options.node, options.program, metrics, options.output))
    others = (options.node, options.skip, options.count, options.set, options.output)
    if any(other is not None for other in others) or options.program or options.execute:
        options.refuse("argument --analyze: it goes without a program and other options")
    from cprofiling.format import shown_text
    from cprofiling.ncu_report import analyze_ncu_report

    try:
        return str(analyze_ncu_report(options.analyze))
    except (OSError, ValueError) as error:
        raise CommandError(shown_text("error", str(error))) from None


def nsys(options: argparse.Namespace) -> str:
    """Return the command line of nsys, or run it."""
    from cprofiling import deep_dive

    check_window(options)
    return deep_dived(options, deep_dive.nsys_command(options.node, options.program, options.output, options.count))


def check_window(options: argparse.Namespace) -> None:
    """Refuse a command without a node or a program, and put in which calls are meant where that is not said."""
    if options.node is None:
        options.refuse("argument --node: the name of a node is required")
    if not options.program:
        options.refuse("a program is required, such as: -- python app.py")
    options.skip = 0 if options.skip is None else options.skip
    options.count = 1 if options.count is None else options.count


def deep_dived(options: argparse.Namespace, command: list[str]) -> str:
    """Return a tool's command line, which begins with its name, or become the tool."""
    from cprofiling import deep_dive

    name = command[0]
    environment = {deep_dive.VARIABLE: deep_dive.capture(options.node, options.skip, options.count)}
    if options.execute:
        try:
            deep_dive.execute(name, environment, command)
        except deep_dive.ToolError as error:
            raise CommandError(str(error)) from None
    tool = deep_dive.find_tool(name)
    if tool is None:
        fail(deep_dive.missing(name))
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return deep_dive.shell_line(environment, [tool or name, *command[1:]], encoding)


def doctor(options: argparse.Namespace) -> str:
    """Return the report on this machine."""
    from cprofiling.doctor import report

    return report(as_json=options.json)


def harness(options: argparse.Namespace) -> str:
    """Run a stage alone and return what it took, or return the stages of a file of signatures."""
    from cprofiling.stages import harness_command

    if not options.list and (options.stage is None or options.factory is None):
        options.refuse("the following arguments are required: --stage and --factory, or --list")
    try:
        if options.list:
            return harness_command.stages_in(options.signature)
        return harness_command.run(options)
    except harness_command.HarnessError as error:
        raise CommandError(str(error)) from None


def merge(options: argparse.Namespace) -> str:
    """Merge files and return what they hold; CommandError, after that was printed, where some are not among them."""
    from cprofiling.stages.merge import MergeError, merge_files

    try:
        outcome = merge_files(options.files, options.output, options.expect)
    except MergeError as error:
        for complaint in error.complaints:
            fail(complaint)
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"cannot write {error.filename}: {error.strerror}") from None
    if not outcome.complaints:
        return outcome.text
    write(outcome.text)
    *complaints, last = outcome.complaints
    for complaint in complaints:
        fail(complaint)
    raise CommandError(last)


def write(text: str) -> None:
    """Print a result on stdout. CommandError when it cannot be written."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "replace").decode(encoding), flush=True)
    except OSError as error:
        raise CommandError(f"cannot write to stdout: {error.strerror}") from None


def fail(message: str, status: int = EXIT_FAILURE) -> int:
    """Say on stderr, in one line, what went wrong, and return the exit status for it."""
    print(f"cprofiling: {message}", file=sys.stderr)
    return status
