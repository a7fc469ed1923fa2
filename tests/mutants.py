"""Break the sources on purpose, one break at a time, and see each caught.

    python -m tests.mutants [NAME ...]

A break is a mutant: a few lines in a file below `tests/mutants/` that say what is
broken, which text of which source is replaced by what, and which tests are to catch
it, each of them by itself. The sources are copied first and only the copy is broken.
It is built incrementally and without link-time optimisation, which takes seconds.

The old text has to occur just once, or the run ends before it begins: a mutant that
does not fit the sources any more proves nothing. `--check` looks for that alone.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).with_suffix("")
SOURCES = (
    *("Cargo.toml", "Cargo.lock", "pyproject.toml", "README.md", "LICENSE"),
    *("rust", "python", "tests", "docs", "examples"),
)
NOT_SOURCES = shutil.ignore_patterns("target", "__pycache__", "*.so", ".*")
# Tests by short names; everything else is what pytest is given.
PYTEST = (
    *("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"),
    *("--hypothesis-profile", "mutants"),
)
EPISODES = ("-m", "tests.episodes", "--count", "1000", "--as-played")
RUST = ("cargo", "test", "--release", "--locked", "--package", "kvindex")
# Tests of all interleavings, by this and their module; loom needs builds of its own.
LOOM = "interleaved"
SECONDS = 300
# A broken index may well ask for memory without end.
MEMORY = 8 << 30
SURVIVED = "SURVIVED"


class MutantError(Exception):
    """A mutant does not fit the sources, or the sources fail unbroken."""


@dataclass(frozen=True)
class Edit:
    """A text in a file that is replaced by another."""

    file: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """Return a file's text after the edit."""
        times = text.count(self.old)
        if times != 1:
            message = f"{self.file} has {times} times, not once:\n{self.old}"
            raise MutantError(message)
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Mutant:
    """One way to break the sources.

    `tries` is how often a test may be run until it catches what depends on chance.
    """

    name: str
    breaks: str
    edits: tuple[Edit, ...]
    caught_by: tuple[str, ...]
    tries: int = 1

    @property
    def is_built(self) -> bool:
        """Whether it takes a build of the extension module."""
        if all(name.startswith(LOOM) for name in self.caught_by):
            return False
        return not all(edit.file.endswith(".py") for edit in self.edits)

    def applied(self, root: Path) -> dict[Path, str]:
        """Return the files that are broken, and their broken texts."""
        texts: dict[Path, str] = {}
        for edit in self.edits:
            path = root / edit.file
            try:
                texts[path] = edit.applied(texts.get(path) or path.read_text())
            except MutantError as error:
                message = f"{self.name}: {error}"
                raise MutantError(message) from None
        return texts


def mutants() -> Iterator[Mutant]:
    """Yield all mutants, in the order of their files and in them."""
    for path in sorted(DATA.glob("*.toml")):
        for fields in tomllib.loads(path.read_text())["mutant"]:
            also = fields.pop("also", [])
            first = {key: fields.pop(key) for key in ("file", "old", "new")}
            edits = tuple(Edit(**each) for each in (first, *also))
            fields["caught_by"] = tuple(fields["caught_by"])
            yield Mutant(edits=edits, **fields)


@dataclass(frozen=True)
class Outcome:
    """What became of one command, and the line that says most about it."""

    code: int
    said: str
    seconds: float


class Copy:
    """A copy of the sources that may be broken, built and tested."""

    def __init__(self, folder: Path) -> None:
        """Copy the sources, with new times: what was built before is older."""
        self.tree = folder / "tree"
        self.wheels = folder / "wheels"
        # Whether the extension module was built of broken sources.
        self.broken = False
        shutil.rmtree(self.tree, ignore_errors=True)
        self.tree.mkdir(parents=True)
        for name in SOURCES:
            source, target = ROOT / name, self.tree / name
            if source.is_dir():
                copy = shutil.copyfile
                shutil.copytree(source, target, ignore=NOT_SOURCES, copy_function=copy)
            else:
                shutil.copyfile(source, target)
        self.environment = os.environ | {
            "CARGO_INCREMENTAL": "1",
            "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
            "CARGO_PROFILE_RELEASE_LTO": "off",
            "CARGO_TARGET_DIR": str(folder / "build"),
            "PYO3_PYTHON": sys.executable,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(self.tree / "python"),
        }

    def run(self, *command: str, **variables: str) -> Outcome:
        """Run a command in the copy."""
        started = time.perf_counter()
        try:
            done = subprocess.run(
                command,
                check=False,
                cwd=self.tree,
                env=self.environment | variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            return Outcome(-1, f"did not end in {SECONDS} s", SECONDS)
        seconds = time.perf_counter() - started
        return Outcome(done.returncode, telling(done.stdout), seconds)

    def build(self) -> Outcome:
        """Build the extension module and put it where the package is."""
        shutil.rmtree(self.wheels, ignore_errors=True)
        built = self.run(
            *(sys.executable, "-m", "maturin", "build", "--release", "--locked"),
            *("--quiet", "--auditwheel", "skip", "--out", str(self.wheels)),
        )
        if built.code:
            return built
        (wheel,) = self.wheels.iterdir()
        with ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.startswith("kvindex/_core.") and not name.endswith(".pyi"):
                    archive.extract(name, self.tree / "python")
        return built

    def test(self, name: str) -> Outcome:
        """Run tests by their name in a mutant."""
        if name == "rust":
            return self.run(*RUST, "--lib")
        if name == "agreement":
            return self.run(*RUST, "--test", name)
        if name.startswith(LOOM):
            folder = str(self.tree.parent / "loom")
            variables = {"RUSTFLAGS": "--cfg loom", "CARGO_TARGET_DIR": folder}
            return self.run(*RUST, "--lib", name, **variables)
        arguments = EPISODES if name == "episodes" else (*PYTEST, name)
        return self.run(sys.executable, *arguments)


def telling(output: str) -> str:
    """Return the line of an output that says most about a failure."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for line in lines:
        if line.startswith(("FAILED ", "error: ", "error[")) or (
            line.startswith(("episode ", "test ")) and "FAILED" in line.upper()
        ):
            return line.partition("::")[2] or line
    return lines[-1] if lines else ""


def write(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def row(*cells: str) -> str:
    """Return a line of the table."""
    name, by, seconds, said = cells
    return f"{name:31} {by:31} {seconds:>7}  {said:.70}".rstrip()


def check_unbroken(copy: Copy, names: Iterable[str]) -> None:
    """Build the copy as it is and see that all tests pass."""
    if not all(name.startswith(LOOM) for name in names):
        built = copy.build()
        if built.code:
            message = f"the sources do not build unbroken: {built.said}"
            raise MutantError(message)
        write(row("(unbroken)", "builds", f"{built.seconds:.1f}", ""))
    for name in names:
        outcome = copy.test(name)
        if outcome.code:
            message = f"the sources fail {name} unbroken: {outcome.said}"
            raise MutantError(message)
        write(row("(unbroken)", f"passes {name}", f"{outcome.seconds:.1f}", ""))


def hunt(copy: Copy, mutant: Mutant) -> bool:
    """Break the copy, build and test it, and mend it; return whether all caught it."""
    broken = mutant.applied(copy.tree)
    whole = {path: path.read_text() for path in broken}
    try:
        for path, text in broken.items():
            path.write_text(text)
        if mutant.is_built or copy.broken:
            copy.broken = mutant.is_built
            built = copy.build()
            if built.code:
                seconds = f"{built.seconds:.1f}"
                write(row(mutant.name, "DOES NOT BUILD", seconds, built.said))
                return False
        catches = [caught(copy, mutant, name) for name in mutant.caught_by]
        return all(catches)
    finally:
        for path, text in whole.items():
            path.write_text(text)


def caught(copy: Copy, mutant: Mutant, name: str) -> bool:
    """Run one of the tests that have to notice; return whether it did."""
    seconds = 0.0
    outcome = Outcome(0, "", 0.0)
    for _ in range(mutant.tries):
        outcome = copy.test(name)
        seconds += outcome.seconds
        if outcome.code:
            break
    # Tests that were interrupted or not found are no catch either; a library whose
    # tests fail is 101 to cargo.
    by_cargo = name in {"rust", "agreement"} or name.startswith(LOOM)
    noticed = outcome.code == (101 if by_cargo else 1)
    by = name if noticed else f"{SURVIVED} {name}"
    write(row(mutant.name, by, f"{seconds:.1f}", outcome.said))
    return noticed


def main() -> int:
    """Run from a command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="mutants; all if none is named")
    parser.add_argument("--check", action="store_true", help="only whether they fit")
    parser.add_argument("--work", type=Path, default=ROOT / "target" / "mutants")
    options = parser.parse_args()
    everyone = {mutant.name: mutant for mutant in mutants()}
    unknown = set(options.names) - everyone.keys()
    if unknown:
        parser.error(f"no such mutants: {', '.join(sorted(unknown))}")
    chosen = [everyone[name] for name in options.names or everyone]
    started = time.perf_counter()
    try:
        for mutant in chosen:
            mutant.applied(ROOT)
        if options.check:
            write(f"{len(chosen)} mutants fit the sources")
            return 0
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        copy = Copy(options.work.absolute())
        write(row("mutant", "caught by", "seconds", "how"))
        tests = {name: None for each in chosen for name in each.caught_by}
        check_unbroken(copy, tests)
        survivors = [mutant for mutant in chosen if not hunt(copy, mutant)]
    except MutantError as error:
        write(str(error))
        return 1
    seconds = time.perf_counter() - started
    write(f"{len(chosen) - len(survivors)} of {len(chosen)} caught in {seconds:.0f} s")
    for mutant in survivors:
        write(f"not caught: {mutant.name}: {mutant.breaks}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
