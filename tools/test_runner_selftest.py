#!/usr/bin/env python3
"""Tests `test_runner.py` with test programs that pass, fail, fail once, hang or crash as they are told."""

import os
import subprocess
import tempfile
import unittest

RUNNER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "test_runner.py")

# Prints what libtest prints. The file beside it has a line `NAME pass|fail|once|hang|crash|ignore|child` for each test.
FAKE = """#!/bin/sh
only=; [ "$1" = --exact ] && only=$2
passed=0 failed=0 ignored=0 names=
while read -r name how; do
  [ -z "$only" ] || [ "$only" = "$name" ] || continue
  echo "$name $*" >>"$0.log"
  case $how in
    once) [ -e "$0.$name" ] && how=pass || { touch "$0.$name"; how=fail; } ;;
    hang) exec sleep 60 ;;
    crash) kill -ABRT $$ ;;
  esac
  case $how in
    pass) passed=$((passed + 1)); echo "test $name ... ok" ;;
    # As it looks when a child process writes in between.
    fail) failed=$((failed + 1)); names="$names $name"; printf 'test %s ... noise\\nFAILED\\n' "$name" ;;
    ignore) ignored=$((ignored + 1)); echo "test $name ... ignored, some reason" ;;
    child) ignored=$((ignored + 1)); echo "test $name ... ignored, started by the other tests as a child" ;;
  esac
done <"$0.plan"
word=ok
if [ $failed -gt 0 ]; then
  word=FAILED
  printf '\\nfailures:\\n\\n---- stdout ----\\n    indented output\\n\\nfailures:\\n'
  printf '    %s\\n' $names
fi
printf '\\ntest result: %s. %s passed; %s failed; %s ignored; 0 measured; 0 filtered out; finished in 0.00s\\n\\n' \\
  $word $passed $failed $ignored
[ $failed -eq 0 ] || exit 101
"""


class TestRunner(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.mkdir(os.path.join(self.folder, "tests"))
        self.environment = dict(
            os.environ,
            CARGO_MANIFEST_DIR=self.folder,
            CARGO_PKG_NAME="shop",
            LEASEHOLD_RESULTS=os.path.join(self.folder, "results"),
            LEASEHOLD_SKIPS=os.path.join(self.folder, "skips"),
            LEASEHOLD_LEAVE_OUT="",
            LEASEHOLD_TEST_LIMIT="20",
        )

    def runner(self, *arguments, stdin=None):
        command = [RUNNER, *map(str, arguments)]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, input=stdin, check=False)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def run_program(self, target="servers", integration=True, **plan):
        """Runs a test program with these tests. Returns the runner's exit code and output."""
        if integration:
            open(os.path.join(self.folder, "tests", target + ".rs"), "w").close()
        program = os.path.join(self.folder, target + "-0123456789abcdef")
        with open(program, "w", encoding="utf-8") as file:
            file.write(FAKE)
        os.chmod(program, 0o755)
        with open(program + ".plan", "w", encoding="utf-8") as file:
            file.writelines(f"{name} {how}\n" for name, how in plan.items())
        self.log = program + ".log"
        return self.runner("run", program, "--test-threads=2")

    def runs(self):
        with open(self.log, encoding="utf-8") as file:
            return file.read().splitlines()

    def summary(self, code=0):
        """The exit code of the run, the last line, and everything."""
        code, text = self.runner("summary", "tests", code)
        return code, text.splitlines()[-1], text

    def test_what_passes_is_counted(self):
        code, output = self.run_program(a="pass", b="pass", c="ignore", d="child")
        self.assertEqual(code, 0)
        self.assertIn("test a ... ok", output)
        code, last, text = self.summary()
        self.assertEqual((code, last), (0, "2 passed, 0 failed, 1 skipped"))
        self.assertIn("skipped:\n  shop/servers: c ignored, some reason\n", text)

    def test_what_fails_once_is_flaky_and_passes(self):
        code, output = self.run_program(a="pass", b="once")
        self.assertEqual(code, 0)
        self.assertIn("shop/servers: b failed and is run once more, alone", output)
        self.assertEqual(self.runs(), ["a --test-threads=2", "b --test-threads=2", "b --exact b --test-threads=1"])
        code, last, text = self.summary()
        self.assertEqual((code, last), (0, "2 passed, 0 failed, 0 skipped"))
        self.assertIn("flaky: failed, then passed alone:\n  shop/servers: b\n\n1 flaky\n", text)

    def test_what_fails_twice_fails(self):
        code, _ = self.run_program(a="pass", b="fail", c="once")
        self.assertEqual(code, 101)
        code, last, text = self.summary(code)
        self.assertEqual((code, last), (101, "2 passed, 1 failed, 0 skipped"))
        self.assertIn("failed:\n  shop/servers: b\n", text)

    def test_three_flaky_tests_fail_the_run(self):
        self.assertEqual(self.run_program("one", a="once", b="once")[0], 0)
        self.assertEqual(self.run_program("two", c="once")[0], 0)
        code, last, text = self.summary()
        self.assertEqual((code, last), (1, "0 passed, 3 failed, 0 skipped"))
        self.assertIn("3 tests are flaky: more than 2 fail the run.", text)

    def test_unit_tests_and_pure_crates_get_no_second_try(self):
        self.assertEqual(self.run_program("shop", integration=False, a="once")[0], 101)
        self.assertEqual(len(self.runs()), 1)
        self.environment["CARGO_PKG_NAME"] = "leasehold-core"
        self.assertEqual(self.run_program("model", b="once")[0], 101)
        self.assertEqual(len(self.runs()), 1)
        self.assertEqual(self.summary(101)[1], "0 passed, 2 failed, 0 skipped")

    def test_many_failures_are_not_run_again(self):
        self.assertEqual(self.run_program(**{name: "once" for name in "abcdef"})[0], 101)
        self.assertEqual(len(self.runs()), 6)

    def test_what_hangs_fails_and_is_not_run_again(self):
        self.environment["LEASEHOLD_TEST_LIMIT"] = "0.1"
        self.assertEqual(self.run_program(a="pass", b="hang")[0], 124)
        self.assertEqual(len(self.runs()), 2)
        self.assertIn("failed:\n  shop/servers: did not end within 0.1 s\n", self.summary(124)[2])

    def test_what_crashes_fails_and_is_not_run_again(self):
        self.assertNotEqual(self.run_program(a="crash")[0], 0)
        self.assertEqual(len(self.runs()), 1)
        self.assertEqual(self.summary(101)[1], "0 passed, 1 failed, 0 skipped")

    def test_a_tier_can_leave_programs_out(self):
        self.environment["LEASEHOLD_LEAVE_OUT"] = "shop/other shop/servers"
        self.assertEqual(self.run_program(a="fail")[0], 0)
        self.assertEqual(self.summary()[1], "0 passed, 0 failed, 0 skipped")

    def test_doctests_are_counted_from_their_output(self):
        output = "test src/lib.rs - (line 3) ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured\n"
        self.assertEqual(self.runner("count", "doctests", stdin=output * 2), (0, output * 2))
        self.assertEqual(self.summary()[1], "2 passed, 0 failed, 0 skipped")

    def test_tests_that_skip_themselves_are_named(self):
        with open(self.environment["LEASEHOLD_SKIPS"], "w", encoding="utf-8") as file:
            file.write("etcd is missing\netcd is missing\n")
        _, last, text = self.summary()
        self.assertEqual(last, "0 passed, 0 failed, 2 skipped")
        self.assertIn("skipped:\n  etcd is missing (2 times)\n", text)

    def test_a_step_that_fails_without_a_test_is_a_failure(self):
        code, last, text = self.summary(1)
        self.assertEqual((code, last), (1, "0 passed, 1 failed, 0 skipped"))
        self.assertIn("failed:\n  step tests\n", text)


if __name__ == "__main__":
    unittest.main()
