"""The command `mfuloss`: verbs that parse, call and print. Results go to stdout, all else to stderr."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from pipeline.lake import interrupt
from pipeline.model.errors import ExitCode, MfulossError, UsageError

if TYPE_CHECKING:
    from pipeline.executor import Progress

INTERRUPTED = 130
"""Exit code after Ctrl-C or SIGTERM, as shells have it: 128 + SIGINT. None of ExitCode's: nothing was decided."""

app = typer.Typer(
    name="mfuloss",
    help="Where did the step time go? Attributes every nanosecond of every step of a GPU cluster.",
    epilog="Exit codes: 0 done, 1 a bug, 2 bad use or unusable input, 3 part of the input was unusable, "
    "4 a gate failed, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
lake_app = typer.Typer(help="What a lake holds, and keeping it small.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(lake_app, name="lake")
collect_app = typer.Typer(
    help="Trace RDMA posts, completions and proxy threads of this node with eBPF (docs/ebpf.md).",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(collect_app, name="collect")
recipe_app = typer.Typer(help="The Nsight Systems recipe mfu_loss.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(recipe_app, name="recipe")


def _version(asked: bool) -> None:
    if asked:
        from pipeline import __version__

        put(f"mfuloss {__version__}")
        raise typer.Exit


@app.callback()
def _every_command(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error arose (anywhere on the line).")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    # main() takes --debug out of the line: it needs it before anything is parsed.
    pass


LakeOption = Annotated[Path, typer.Option("--lake", metavar="DIR", help="The lake's folder.")]
RunArgument = Annotated[str | None, typer.Argument(metavar="[RUN]", help="Run id (default: the newest).")]
ConfigOption = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="run.toml")]
JobsOption = Annotated[int | None, typer.Option("--jobs", min=1, help="Processes (default: all cores).")]
SchedulerOption = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS", help="Dask scheduler's address, or local:N."),
]
OutputOption = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE.")]
LibraryOption = Annotated[
    Path | None, typer.Option("--library", metavar="FILE", help="libmlx5 to probe, where no process uses one yet.")
]
PidOption = Annotated[list[int] | None, typer.Option("--pid", help="Only this process; may be repeated.")]
PollOption = Annotated[bool, typer.Option("--poll/--no-poll", help="Also see completions (traps on empty polls).")]
SecondsOption = Annotated[
    float | None, typer.Option("--seconds", min=0, help="Stop after this long (default: at SIGINT or SIGTERM).")
]


def say(line: str) -> None:
    """A line for the user, on stderr."""
    print(line, file=sys.stderr)  # noqa: T201


def put(result: str | bytes, output: Path | None = None) -> None:
    """The result: to a file, or to stdout. Text ends with a line break."""
    if isinstance(result, str):
        result = (result if result.endswith("\n") else result + "\n").encode()
    if output is None:
        sys.stdout.buffer.write(result)
        sys.stdout.flush()
        return
    try:
        output.write_bytes(result)
    except OSError as error:
        raise UsageError(f"can't write it: {error.strerror}", where=output) from None


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A progress bar on stderr where that is a terminal, else nothing."""
    from pipeline.executor import no_progress

    if not sys.stderr.isatty():
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def show(stage: str, done: int, total: int) -> None:
            kind = stage.split(" ", 1)[0]
            if kind not in tasks:
                tasks[kind] = bars.add_task(stage, total=total or None)
            bars.update(tasks[kind], description=stage, completed=done, total=total or None)

        yield show


def _say_where(scheduler: str | None) -> None:
    """Which cluster works, and where to watch it; nothing for one that lasts as long as the command."""
    if scheduler is not None and scheduler.partition(":")[0] != "local":
        from pipeline.executor import cluster_line

        say(cluster_line(scheduler))


# ---------------------------------------------------------------------------------------------------


@app.command(
    epilog="Examples:  mfuloss ingest captures/ --lake lake   |   mfuloss ingest 'node*/*.sqlite' --lake lake "
    "--run incident-7 --config run.toml --jobs 8"
)
def ingest(
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT...", help="Files, folders or globs.")],
    lake: LakeOption,
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="Run id.")] = None,
    config: ConfigOption = None,
    jobs: JobsOption = None,
    scheduler: SchedulerOption = None,
    nsys: Annotated[
        str | None,
        typer.Option("--nsys", metavar="FILE", help="The nsys that exports .nsys-rep (default: $NSYS, PATH)."),
    ] = None,
) -> None:
    """Read captures into the lake as one run, and attribute it."""
    if nsys is not None:
        os.environ["NSYS"] = nsys
    from pipeline.ingest import ingest as run_ingest

    _say_where(scheduler)
    with progress_bar() as progress:
        report = run_ingest(inputs, lake, run=run, config=config, jobs=jobs, scheduler=scheduler, progress=progress)
    for note in report.notes:
        say(f"note: {note}")
    for name, reason in report.partial:
        say(f"{name}: partial: {reason}")
    for name, reason in report.unusable:
        say(f"{name}: unusable: {reason}")
    if report.changed:
        put(f"run {report.run}: {len(report.read)} read, {len(report.unchanged)} unchanged, {report.rows} rows")
    else:
        put(f"run {report.run}: nothing new, unchanged")
    if report.unusable:
        raise typer.Exit(ExitCode.PARTIAL)


@app.command(epilog="Example:  mfuloss attribute incident-7 --lake lake --config run.toml")
def attribute(
    lake: LakeOption,
    run: RunArgument = None,
    config: ConfigOption = None,
    jobs: JobsOption = None,
    scheduler: SchedulerOption = None,
) -> None:
    """Attribute a run again, for example after run.toml changed."""
    from pipeline.ingest import attribute as run_attribute

    _say_where(scheduler)
    with progress_bar() as progress:
        done = run_attribute(lake, run, config=config, jobs=jobs, scheduler=scheduler, progress=progress)
    put(f"run {done}: attributed")


@app.command(
    epilog="Examples:  mfuloss report --lake lake   |   mfuloss report incident-7 --lake lake --format html -o r.html"
)
def report(
    lake: LakeOption,
    run: RunArgument = None,
    format: Annotated[str, typer.Option(help="text, json, markdown, html, svg or png")] = "text",
    output: OutputOption = None,
    rank: Annotated[int | None, typer.Option(min=0, help="One rank's view.")] = None,
    step: Annotated[int | None, typer.Option(min=0, help="One step's view.")] = None,
) -> None:
    """Where a run's time went."""
    _choice("--format", format, ("text", "json", "markdown", "html", "svg", "png"))
    if format == "png" and output is None:
        raise UsageError("--format png needs a file", todo="add -o FILE")
    from pipeline.reports import render

    color = format == "text" and output is None and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    put(render(lake, run, format, rank=rank, step=step, color=color), output)


@app.command(
    epilog="Examples:  mfuloss compare monday tuesday --lake lake   |   "
    "mfuloss compare monday tuesday --lake lake --gate 1.5"
)
def compare(
    base: Annotated[str, typer.Argument(metavar="BASE", help="Run id to compare with.")],
    candidate: Annotated[str, typer.Argument(metavar="CANDIDATE", help="Run id that is judged.")],
    lake: LakeOption,
    format: Annotated[str, typer.Option(help="text, json, markdown or html")] = "text",
    output: OutputOption = None,
    gate: Annotated[
        float | None, typer.Option("--gate", metavar="POINTS", min=0, help="Exit code 4 if more MFU points are lost.")
    ] = None,
) -> None:
    """What changed between two runs, beyond the noise of their steps."""
    _choice("--format", format, ("text", "json", "markdown", "html"))
    from pipeline.lake.catalog import find_run
    from pipeline.reports import compare as module

    found = module.load(find_run(lake, base), find_run(lake, candidate))
    color = format == "text" and output is None and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    put(module.shown(found, format, color=color), output)
    if gate is not None:
        module.gate(found, gate)


@app.command(
    epilog="Examples:  mfuloss export perfetto --lake lake --step 12 -o step12.pftrace   |   "
    "mfuloss export chrome incident-7 --lake lake --step 12 --rank 3 --rank 4 -o step12.json"
)
def export(
    format: Annotated[str, typer.Argument(metavar="perfetto|chrome", help="For ui.perfetto.dev, or Chrome's JSON.")],
    lake: LakeOption,
    step: Annotated[int, typer.Option("--step", min=0, help="The step to show.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE.")],
    run: RunArgument = None,
    rank: Annotated[list[int] | None, typer.Option("--rank", min=0, help="A rank to show (default: all).")] = None,
) -> None:
    """One step as a timeline for a trace viewer."""
    _choice("export", format, ("perfetto", "chrome"))
    from pipeline.reports import perfetto
    from pipeline.reports.words import plural

    done = perfetto.export(lake, run, step, format, output, ranks=rank)
    say(f"{output}: step {step} of {plural(done.ranks, 'rank')}, {done.slices} slices, {done.flows} flows")


@app.command(
    epilog="Examples:  mfuloss whatif --lake lake   |   mfuloss whatif incident-7 --lake lake --change two_hop "
    "--change gpu_initiated --target-mfu 45"
)
def whatif(
    lake: LakeOption,
    run: RunArgument = None,
    change: Annotated[
        list[str] | None, typer.Option("--change", metavar="NAME", help="A change; several are applied together too.")
    ] = None,
    target_mfu: Annotated[
        float | None, typer.Option("--target-mfu", metavar="PCT", help="How much exposed communication an MFU allows.")
    ] = None,
    format: Annotated[str, typer.Option(help="text or json")] = "text",
) -> None:
    """What a change would bring, by replaying the messages with it."""
    _choice("--format", format, ("text", "json"))
    from pipeline.reports import whatifs

    put(whatifs.render(lake, run, change, target_mfu, format))


@app.command(
    epilog='Examples:  mfuloss sql --lake lake "SELECT category, sum(attributed_ns) FROM breakdown GROUP BY ALL"   |   '
    "mfuloss sql --lake lake --format csv -o steps.csv 'FROM steps'"
)
def sql(
    lake: LakeOption,
    query: Annotated[str | None, typer.Argument(metavar="[SELECT]", help="SQL; without it, a prompt.")] = None,
    format: Annotated[str, typer.Option(help="table, csv, json or parquet")] = "table",
    output: OutputOption = None,
    list_: Annotated[bool, typer.Option("--list", help="List the queries of the library.")] = False,
    show: Annotated[str | None, typer.Option("--show", metavar="NAME", help="Print a query of the library.")] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="NAME", help="Ask a question of the library.")] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", metavar="KEY=VALUE", help="An argument of it; may be repeated.")
    ] = None,
) -> None:
    """Ask the lake in SQL, read-only."""
    _choice("--format", format, ("table", "csv", "json", "parquet"))
    from pipeline.lake import console, questions

    if sum((query is not None, list_, show is not None, run is not None)) > 1:
        raise UsageError("more than one of SELECT, --list, --show and --run", todo="give one of them")
    if param and run is None:
        raise UsageError("--param without --run", todo="name the question: --run NAME")
    if list_:
        put(questions.listing())
    elif show is not None:
        put(questions.text(show))
    elif run is not None:
        console.answer(lake, *questions.call(run, param or []), format=format, output=output)
    elif query is None:
        console.prompt(lake)
    else:
        console.answer(lake, query, format=format, output=output)


@app.command(
    epilog="Examples:  mfuloss simulate --list   |   mfuloss simulate moe-control-plane --out incident --nodes 2 "
    "--gpus-per-node 4   |   mfuloss simulate healthy --out night --ranks 16 --steps 10 --seed 7"
)
def simulate(
    scenario: Annotated[str | None, typer.Argument(metavar="[SCENARIO]", help="What to play; see --list.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder for the files.")] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", help="Nodes (default: the scenario's).")] = None,
    gpus_per_node: Annotated[int | None, typer.Option("--gpus-per-node", help="GPUs of a node, 1 to 8.")] = None,
    ranks: Annotated[
        int | None, typer.Option("--ranks", help="Nodes times GPUs a node, in place of one of them.")
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Steps.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same bytes.")] = 1,
    scale: Annotated[
        float | None,
        typer.Option("--scale", help="Size against the real incident: durations and messages, 0.002 to 1."),
    ] = None,
    lose: Annotated[
        float, typer.Option("--lose", help="Share of the middle step whose eBPF records the last node loses, 0 to 0.5.")
    ] = 0.0,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that holds files.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Every scenario in a line.")] = False,
) -> None:
    """Play an incident on a simulated cluster: its captures as real files, and the truth beside them."""
    from pipeline.simulate import SCENARIOS, node_sizes
    from pipeline.simulate import simulate as play

    if list_:
        width = max(len(name) for name in SCENARIOS)
        put("\n".join(f"{name:<{width}}  {SCENARIOS[name].title}" for name in SCENARIOS))
        return
    if scenario is None:
        raise UsageError("no scenario", todo="name one of mfuloss simulate --list")
    if out is None:
        raise UsageError("no folder to write to", todo="give --out DIR")
    nodes, gpus_per_node = node_sizes(scenario, nodes, gpus_per_node, ranks)
    put(
        str(
            play(
                scenario,
                out,
                nodes=nodes,
                gpus_per_node=gpus_per_node,
                steps=steps,
                seed=seed,
                scale=scale,
                lose=lose,
                force=force,
            )
        )
    )


@app.command(epilog="Example:  mfuloss nightly inbox --lake lake --out pages --openmetrics mfuloss.prom --gate 1.5")
def nightly(
    inbox: Annotated[
        Path, typer.Argument(metavar="INBOX", help="Folder that runs are dropped in, each with run.toml.")
    ],
    lake: LakeOption,
    history: Annotated[float, typer.Option("--history", metavar="DAYS", min=1, help="How far back to compare.")] = 28.0,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder for pages and nightly.json.")] = None,
    openmetrics: Annotated[
        Path | None, typer.Option("--openmetrics", metavar="FILE", help="Metrics for a textfile collector.")
    ] = None,
    gate: Annotated[
        float | None, typer.Option("--gate", metavar="POINTS", min=0, help="Exit code 4 if a new run lost more.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="nightly.toml (default: the inbox's).")
    ] = None,
    jobs: JobsOption = None,
    scheduler: SchedulerOption = None,
) -> None:
    """Read what is new in an inbox, and say what got worse since the nights before."""
    from pipeline import nightly as batch

    _say_where(scheduler)
    with progress_bar() as progress:
        outcome = batch.nightly(
            inbox,
            lake,
            history_days=history,
            out=out,
            openmetrics=openmetrics,
            config=config,
            jobs=jobs,
            scheduler=scheduler,
            progress=progress,
        )
    for note in outcome.notes:
        say(f"note: {note}")
    for name, reason in (*outcome.partial, *outcome.failed):
        say(f"{name}: unusable: {reason}")
    put("\n".join(batch.lines(outcome)))
    if gate is not None:
        batch.gate(outcome, gate)
    if outcome.exit_code is not ExitCode.DONE:
        raise typer.Exit(outcome.exit_code)


@app.command(epilog="Example:  mfuloss doctor captures/")
def doctor(
    inputs: Annotated[list[str] | None, typer.Argument(metavar="[INPUT...]", help="Files, folders or globs.")] = None,
    config: ConfigOption = None,
    format: Annotated[str, typer.Option(help="text or json")] = "text",
) -> None:
    """What is installed, what a file holds, what is missing and what that costs."""
    _choice("--format", format, ("text", "json"))
    from pipeline import doctor as module

    found = module.examine(inputs or [], config)
    put(module.as_json(found) if format == "json" else module.as_text(found))
    if found.inputs and not any(each.usable for each in found.inputs):
        raise typer.Exit(ExitCode.UNUSABLE)
    if any(not each.usable for each in found.inputs):
        raise typer.Exit(ExitCode.PARTIAL)


# ---------------------------------------------------------------------------------------------------


@lake_app.command("list")
def lake_list(lake: LakeOption, format: Annotated[str, typer.Option(help="text or json")] = "text") -> None:
    """Every run, oldest commit first, with its size."""
    _choice("--format", format, ("text", "json"))
    from pipeline.lake import console, maintenance

    put(console.run_list(maintenance.runs(lake), format))


@lake_app.command("info")
def lake_info(
    lake: LakeOption, run: RunArgument = None, format: Annotated[str, typer.Option(help="text or json")] = "text"
) -> None:
    """What a run holds: captures, tables, sizes, configuration."""
    _choice("--format", format, ("text", "json"))
    from pipeline.lake import console, maintenance

    put(console.run_details(maintenance.describe(lake, run), format))


@lake_app.command("remove")
def lake_remove(
    run: Annotated[str, typer.Argument(metavar="RUN")],
    lake: LakeOption,
    events: Annotated[bool, typer.Option("--events", help="Only its event tables; breakdowns stay.")] = False,
) -> None:
    """Remove a run, or its event tables alone."""
    from pipeline.lake import maintenance

    if events:
        freed = maintenance.drop_events(lake, run)
        put(f"run {run}: events dropped, {freed} bytes freed")
    else:
        maintenance.remove(lake, run)
        put(f"run {run}: removed")


@lake_app.command("refresh")
def lake_refresh(lake: LakeOption) -> None:
    """Write catalog.sql anew, for example after the lake moved."""
    from pipeline.lake.catalog import refresh

    put(str(refresh(lake)))


@lake_app.command("compact")
def lake_compact(
    lake: LakeOption,
    run: RunArgument = None,
    drop_events_after: Annotated[
        float | None,
        typer.Option("--drop-events-after", metavar="DAYS", min=0, help="Also drop events of runs older than this."),
    ] = None,
) -> None:
    """One file a table in place of one a capture."""
    from pipeline.lake import maintenance

    dropped = [] if drop_events_after is None else maintenance.drop_old_events(lake, drop_events_after)
    for each in dropped:
        put(f"run {each}: events dropped")
    for each in [run] if run is not None else [info.run for info in maintenance.runs(lake)]:
        before, after = maintenance.compact(lake, each)
        put(f"run {each}: {before} files, now {after}")


# ---------------------------------------------------------------------------------------------------


@collect_app.command("check", epilog="Example:  mfuloss collect check")
def collect_check(library: LibraryOption = None, pid: PidOption = None) -> None:
    """What this node allows: kernel, bpftrace, libraries in use, where probes can go."""
    from pipeline.collect.node import examine

    found = examine(library=library, pids=tuple(pid or ()))
    for check in found.checks:
        put(f"{'ok  ' if check.ok else 'MISS'} {check.name:9} {check.found}")
        if not check.ok and check.todo:
            put(f"               {check.todo}")
    put("measurable: " + ", ".join(found.measurable) if found.ready else "nothing is measurable yet")
    if found.ready:
        put("not measurable: " + ", ".join(found.not_measurable))
    else:
        raise typer.Exit(ExitCode.UNUSABLE)


@collect_app.command("print", epilog="Example:  mfuloss collect print --pid 4711 > review.bt")
def collect_print(library: LibraryOption = None, pid: PidOption = None, poll: PollOption = True) -> None:
    """The bpftrace program for this node, for review."""
    from pipeline.collect.node import examine
    from pipeline.collect.program import program

    pids = tuple(pid or ())
    put(program(examine(library=library, pids=pids), pids=pids, poll=poll))


@collect_app.command("run", epilog="Example:  mfuloss collect run -o captures/node07 --seconds 30")
def collect_run(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="A new folder for the capture.")],
    seconds: SecondsOption = None,
    library: LibraryOption = None,
    pid: PidOption = None,
    poll: PollOption = True,
    calibrated: Annotated[
        bool, typer.Option("--calibrate/--no-calibrate", help="Measure the probes' cost first.")
    ] = True,
) -> None:
    """Trace this node until --seconds are over, SIGINT or SIGTERM."""
    from pipeline.collect.calibrate import calibrate
    from pipeline.collect.node import examine
    from pipeline.collect.program import program
    from pipeline.collect.run import run

    pids = tuple(pid or ())
    found = examine(library=library, pids=pids)
    source = program(found, pids=pids, poll=poll)
    cost = calibrate(found.post_send[0]) if calibrated else None
    outcome = run(
        source, found, output, seconds=seconds, probe_cost=cost, started=lambda: say("tracing; Ctrl-C stops it")
    )
    put(f"{outcome.csv}: {outcome.records} records, {outcome.lost_events} lost, {outcome.seconds:.1f} s")
    if outcome.lost_events:
        say("events were lost: their windows will be trace_gap; docs/ebpf.md says at which rates that happens")


@collect_app.command(
    "counters", epilog="Example:  mfuloss collect counters -o captures/node07/counters.csv --seconds 30"
)
def collect_counters(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="CSV file.")],
    interval: Annotated[float, typer.Option("--interval", min=0.01, help="Seconds between samples.")] = 1.0,
    seconds: SecondsOption = None,
) -> None:
    """Sample RDMA port, hardware and ethtool counters."""
    from pipeline.collect.counters import record

    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("w", encoding="utf-8") as stream:
        put(f"{output}: {record(stream, interval_s=interval, seconds=seconds)} readings")


@collect_app.command("calibrate", epilog="Example:  mfuloss collect calibrate")
def collect_calibrate(library: LibraryOption = None) -> None:
    """What a pair of probes adds to the duration of post_send on this node."""
    from pipeline.collect.calibrate import calibrate
    from pipeline.collect.node import examine

    targets = examine(library=library).post_send
    cost = calibrate(targets[0] if targets else None)
    put(
        f"probe cost {cost.median_ns} ns (5th to 95th percentile {cost.p05_ns} to {cost.p95_ns} ns, "
        f"{cost.n} calls of {cost.function}), {'?' if cost.exit_ns is None else cost.exit_ns} ns of it after the function; "
        f"in all {cost.call_ns} ns a call"
    )


# ---------------------------------------------------------------------------------------------------


@recipe_app.command("install", epilog="Example:  mfuloss recipe install recipes")
def recipe_install(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for NSYS_RECIPE_PATH.")],
    force: Annotated[bool, typer.Option("--force", help="Replace it where it is.")] = False,
) -> None:
    """Write the recipe, so that `nsys recipe mfu_loss` finds it."""
    from pipeline.recipe import install

    target = install(folder, force=force)
    put(f"{target}: run it with  NSYS_RECIPE_PATH={folder} nsys recipe mfu_loss --input *.nsys-rep --output DIR")


# ---------------------------------------------------------------------------------------------------


def _choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"{option} {value}: not one of {', '.join(choices)}")


def _interrupted() -> NoReturn:
    say("mfuloss: interrupted; nothing was changed")
    sys.exit(INTERRUPTED)


_signals: list[int] = []
"""Signals that asked to stop: DuckDB ends its query with an error of its own then."""


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    _signals.append(number)
    raise KeyboardInterrupt


def main() -> None:
    """Run the command; one place where errors become a line and an exit code."""
    try:
        _main()
    except KeyboardInterrupt:  # the handler may run only once the error of the query that it ended is being told
        _interrupted()


def _main() -> None:
    debug = "--debug" in sys.argv[1:]
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    if debug:
        os.environ["MFULOSS_DEBUG"] = "1"
    if not sys.stdout.isatty():
        os.environ.setdefault("NO_COLOR", "1")
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup and a shell's & leave it
            signal.signal(number, _interrupt)
    interrupt.watch()
    try:
        status = app(args=arguments, prog_name="mfuloss", standalone_mode=False)
        if status == INTERRUPTED:  # typer's answer to KeyboardInterrupt
            _interrupted()
        sys.exit(int(status) if isinstance(status, int) else 0)
    except MfulossError as error:
        if debug:
            traceback.print_exc()
        say(f"mfuloss: {error.line()}")
        sys.exit(int(error.exit_code))
    except (KeyboardInterrupt, typer.Abort):
        _interrupted()
    except BrokenPipeError:
        # The reader of our output is gone (head): nothing is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if _signals and "interrupted" in str(error):
            _interrupted()
        _usage_error(error)
        if debug:
            raise
        text = " ".join(str(error).split())
        say(f"mfuloss: bug: {type(error).__name__}: {text}; --debug shows where")
        sys.exit(int(ExitCode.BUG))


def _usage_error(error: Exception) -> None:
    """Exit as bad use, with one line, where the command line itself is wrong (typer's own errors)."""
    message = getattr(error, "format_message", None)
    if message is None:
        return
    if type(error).__name__ == "NoArgsIsHelpError":
        say(str(message()))
        sys.exit(int(ExitCode.UNUSABLE))
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "mfuloss")
    say(f"mfuloss: {' '.join(str(message()).split())}; try: {path} --help")
    sys.exit(int(ExitCode.UNUSABLE))


if __name__ == "__main__":
    main()
