#!/usr/bin/env python3
"""Runs test programs for `./test`, gives tests that can fail by chance a second try, and counts what happened.

    test_runner.py run PROGRAM ARG...  cargo's runner: runs one test program under a time limit
    test_runner.py count NAME          passes libtest's output through (stdin to stdout) and counts it
    test_runner.py summary STEP CODE   prints the totals; STEP ended with exit code CODE

The second try is for integration tests, which talk to servers or processes: a failed test is run once more, alone. If it
passes, it counts as flaky, and more than FLAKY_MAX flaky tests fail the whole run. Unit tests and the crates in PURE get
no second try, and neither does a program that hangs or crashes.

Results are appended to the file $LEASEHOLD_RESULTS, one line each: kind, tab, text. Tests that skip themselves append a
line to the file $LEASEHOLD_SKIPS.
"""

import collections
import os
import re
import signal
import subprocess
import sys
import threading

# Their tests depend on nothing but the code: what fails there once is a bug.
PURE = {"leasehold-core", "leasehold-sim", "leasehold-store"}
FLAKY_MAX = 2
# More failures than this in one program are no accident, and running each again would only take time.
SECOND_TRIES_MAX = 5
LIMIT_SECONDS = os.environ.get("LEASEHOLD_TEST_LIMIT", "1200")
# Not tests: other tests start them as child processes.
CHILD = "ignored, started by the other tests as a child"
# Exit codes of `timeout`.
HUNG, KILLED = 124, 137


def record(kind, text):
    path = os.environ.get("LEASEHOLD_RESULTS")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{kind}\t{text}\n")


def recorded():
    """What was recorded so far: for each kind its texts, in order."""
    results = collections.defaultdict(list)
    path = os.environ.get("LEASEHOLD_RESULTS")
    if path and os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                kind, _, text = line.rstrip("\n").partition("\t")
                results[kind].append(text)
    return results


class Output:
    """What libtest printed. Failed tests are taken from the list at the end: child processes of a test write to the same
    output, so that a line `test NAME ... FAILED` may be torn."""

    RESULT = re.compile(r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;")
    COLOUR = re.compile(r"\x1b\[[0-9;]*m")

    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.names = []
        self.ignored = []
        self.list = []

    def line(self, raw):
        line = self.COLOUR.sub("", raw.decode("utf-8", "replace")).rstrip()
        if line == "failures:":
            self.list = []
        elif line.startswith("    "):
            self.list.append(line[4:])
        elif line.startswith("test ") and " ... ignored" in line and not line.endswith(CHILD):
            self.ignored.append(line[len("test ") :].replace(" ... ", " "))
        elif found := self.RESULT.search(line):
            passed, failed, _ = map(int, found.groups())
            self.passed += passed
            self.failed += failed
            self.names += self.list if failed else []
            self.list = []


def copy(source, output):
    """Passes everything on as it comes, and lets `output` read it line by line."""
    rest = b""
    while chunk := os.read(source.fileno(), 65536):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            output.line(line)
    output.line(rest)


def execute(command):
    """Runs a test program under the time limit. Returns its exit code and its output."""
    output = Output()
    limit = ["timeout", "--foreground", "--kill-after=10", LIMIT_SECONDS]
    process = subprocess.Popen(limit + command, stdout=subprocess.PIPE)
    reader = threading.Thread(target=copy, args=(process.stdout, output), daemon=True)
    reader.start()
    code = process.wait()
    # A server that a test has left behind may keep the output open forever.
    reader.join(timeout=5)
    return code, output


def say(text):
    print(f"-- {text}", flush=True)


def target_of(program):
    """The name of the test target: the file's name without the hash that cargo adds."""
    return re.sub(r"-[0-9a-f]{16}$", "", os.path.basename(program))


def deserves_second_try(package, target):
    tests = os.path.join(os.environ.get("CARGO_MANIFEST_DIR", "."), "tests", target)
    return package not in PURE and (os.path.exists(tests + ".rs") or os.path.isdir(tests))


def run(program, arguments):
    package = os.environ.get("CARGO_PKG_NAME", "")
    target = target_of(program)
    title = f"{package}/{target}"
    if title in os.environ.get("LEASEHOLD_LEAVE_OUT", "").split():
        say(f"{title} is not part of this tier")
        return 0

    code, output = execute([program] + arguments)
    record("passed", output.passed)
    for test in output.ignored:
        record("skipped", f"{title}: {test}")
    if code == 0:
        return 0
    # Without a list of failed tests there is nothing to run again: it hung, crashed, or its output is torn.
    if not output.failed or output.failed != len(output.names):
        reasons = {HUNG: f"did not end within {LIMIT_SECONDS} s", KILLED: "was killed"}
        why = reasons.get(code, f"ended with exit code {code}")
        say(f"{title} {why}")
        record("failed", f"{title}: {why}")
        return code

    second_try = deserves_second_try(package, target) and output.failed <= SECOND_TRIES_MAX
    flaky = [test for test in output.names if second_try and passes_alone(title, program, test)]
    for test in output.names:
        record("flaky" if test in flaky else "failed", f"{title}: {test}")
    return 0 if len(flaky) == output.failed else code


def passes_alone(title, program, test):
    say(f"{title}: {test} failed and is run once more, alone")
    code, output = execute([program, "--exact", test, "--test-threads=1"])
    return code == 0 and output.passed == 1


def count(title):
    output = Output()
    copy(sys.stdin.buffer, output)
    record("passed", output.passed)
    for kind, names in (("failed", output.names), ("skipped", output.ignored)):
        for name in names:
            record(kind, f"{title}: {name}")
    return 0


def summary(step, code):
    results = recorded()
    failed, flaky, skipped = results["failed"], results["flaky"], results["skipped"]
    passed = sum(map(int, results["passed"])) + len(flaky)
    notes = os.environ.get("LEASEHOLD_SKIPS")
    if notes and os.path.exists(notes):
        with open(notes, encoding="utf-8") as file:
            skipped += file.read().splitlines()
    if code and not failed:
        failed = [f"step {step}"]
    if len(flaky) > FLAKY_MAX:
        print(f"\n{len(flaky)} tests are flaky: more than {FLAKY_MAX} fail the run.")
        failed = failed + flaky
        passed -= len(flaky)

    for title, names in (("failed", failed), ("flaky: failed, then passed alone", flaky), ("skipped", skipped)):
        if names:
            print(f"\n{title}:")
        for name, times in sorted(collections.Counter(names).items()):
            print(f"  {name}" + (f" ({times} times)" if times > 1 else ""))
    print(f"\n{len(flaky)} flaky")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return code or (1 if failed else 0)


def main(arguments):
    # Ctrl-C ends this program as it ends the test program.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    command, *rest = arguments or ["help"]
    if command == "run" and rest:
        return run(rest[0], rest[1:])
    if command == "count" and len(rest) == 1:
        return count(rest[0])
    if command == "summary" and len(rest) == 2:
        return summary(rest[0], int(rest[1]))
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # A signal is told as a shell tells it.
    sys.exit(128 - code if code < 0 else code)
