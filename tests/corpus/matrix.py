#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares what kernel ext4 wrote with what uext4 reads, for the shapes of shapes.tsv.

For each shape an image is made with mke2fs and filled by the kernel through a loop mount; a
listing of the read-only kernel mount is the expectation. Against it stand the library (liblist),
`uext4 get` and the FUSE mount. Output is TAP. Needs root, loop devices and, for the mount, FUSE;
skips visibly what it cannot run.

Environment: UEXT4_BIN (the command), UEXT4_TOOLS (folder of filltree, hostlist, liblist), TMPDIR.
"""

import argparse
import concurrent.futures
import contextlib
import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
FIELDS = ("path type mode uid gid size nlink rdev mtime ctime atime ino blocks content xattrs map"
          .split())
COLUMN = {name: number for number, name in enumerate(FIELDS)}
UUID = "8f0ab3c2-55f1-4b51-9d2e-6a1f3f0c7e11"
COMMAND_SECONDS = 110
CHECKS = ("library", "get", "mount", "image untouched")

# An extracted tree lies on the host: these belong to the image or to the moment of extraction.
# An attribute of 60 KB has no place on most hosts, so those below /bigxattr are left out as well.
GET_MASK = frozenset("ctime ino blocks map dirsize bigxattr".split())
# What `mke2fs -d` does not take over from the host tree.
MKE2FS_MASK = frozenset("ctime atime ino blocks map dirsize root lost+found".split())
# Optimising directories off line moves their entries into fewer or more blocks.
CASEFOLD_MASK = frozenset(("dirsize", "dirblocks"))


class Failure(Exception):
    """A step of the preparation failed."""


class Shape:
    """A line of shapes.tsv."""

    def __init__(self, line):
        fields = line.split("\t")
        if len(fields) != 6:
            raise Failure(f"shapes.tsv: six fields expected: {line}")
        self.name, self.size, mke2fs, self.filled_by, fill, self.after = fields
        self.mke2fs = shlex.split(mke2fs) + ["-U", UUID]
        # mke2fs minds only the last -E. A fixed seed gives the same directory indexes every time.
        if "-E" in self.mke2fs:
            self.mke2fs[self.mke2fs.index("-E") + 1] += f",hash_seed={UUID}"
        else:
            self.mke2fs += ["-E", f"hash_seed={UUID}"]
        self.fill = [] if fill == "-" else shlex.split(fill)

    def checks(self):
        return CHECKS + (("case-folding look-up",) if self.after == "casefold" else ())


def read_shapes():
    with open(os.path.join(HERE, "shapes.tsv"), encoding="utf-8") as table:
        lines = [line.rstrip("\n") for line in table]
    return [Shape(line) for line in lines if line and not line.startswith("#")]


class Processes:
    """The commands under way, so that a signal ends them and their threads can clean up."""

    def __init__(self):
        self.lock = threading.Lock()
        self.running = set()
        self.is_stopping = False

    def start(self, arguments, is_cleanup, out, errors):
        # Each command leads a process group: ended with its children here, and not from outside.
        with self.lock:
            if self.is_stopping and not is_cleanup:
                raise Failure("interrupted")
            process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=errors, start_new_session=True)
            if not is_cleanup:
                self.running.add(process)
        return process

    def end(self, process):
        with self.lock:
            self.running.discard(process)

    def stop(self):
        self.is_stopping = True
        for process in list(self.running):
            self.kill(process, signal.SIGTERM)

    @staticmethod
    def kill(process, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)


PROCESSES = Processes()


def run(arguments, ok=(0,), output=None, is_cleanup=False):
    """Runs a command; its output goes to files, since a daemon left behind would keep pipes open."""
    with tempfile.TemporaryFile() as errors, contextlib.ExitStack() as stack:
        out = stack.enter_context(open(output, "wb") if output else tempfile.TemporaryFile())
        try:
            process = PROCESSES.start(arguments, is_cleanup, out, errors)
        except FileNotFoundError as error:
            raise Failure(str(error)) from error
        try:
            status = process.wait(COMMAND_SECONDS)
        except subprocess.TimeoutExpired as error:
            PROCESSES.kill(process, signal.SIGKILL)
            process.wait()
            raise Failure(f"{shlex.join(arguments)}: no end after {COMMAND_SECONDS} s") from error
        finally:
            PROCESSES.end(process)
        errors.seek(0)
        messages = errors.read().decode(errors="replace")
        text = ""
        if not output:
            out.seek(0)
            text = out.read().decode(errors="replace")
    if ok is not None and status not in ok:
        raise Failure(f"{shlex.join(arguments)}: exit status {status}\n{messages}{text}".strip())
    return status, text, messages


def tool(name):
    folder = os.environ.get("UEXT4_TOOLS")
    path = os.path.join(folder, name) if folder else shutil.which(name)
    if not path or not os.access(path, os.X_OK):
        raise Failure(f"{name} not found; UEXT4_TOOLS names the folder of the test tools")
    return path


@contextlib.contextmanager
def loop_device(image):
    """A loop device of our own: mount's own loop option shares one that is just being torn down."""
    try:
        for tries_left in (2, 1, 0):
            try:
                _, text, _ = run(["losetup", "--find", "--show", image])
                break
            except Failure:
                # Another process may have taken the free device that losetup found.
                if not tries_left or PROCESSES.is_stopping:
                    raise
        yield text.strip()
    finally:
        _, text, _ = run(["losetup", "-j", image], ok=None, is_cleanup=True)
        for line in text.splitlines():
            run(["losetup", "-d", line.split(":")[0]], ok=None, is_cleanup=True)


@contextlib.contextmanager
def kernel_mount(device, folder, options):
    point = os.path.join(folder, "kernel")
    os.makedirs(point, exist_ok=True)
    run(["mount", "-t", "ext4", "-o", options, device, point])
    try:
        yield point
    finally:
        status, _, _ = run(["umount", point], ok=None, is_cleanup=True)
        if status:
            run(["umount", "-l", point], ok=None, is_cleanup=True)


def clear_folder(folder):
    """Removes a tree, also one with immutable files."""
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        run(["chattr", "-R", "-f", "-i", "-a", folder], ok=None, is_cleanup=True)
        shutil.rmtree(folder)


class Maker:
    """Makes one shape's image and expected listing in a folder."""

    def __init__(self, shape, folder, work):
        self.shape = shape
        self.work = work
        self.image = os.path.join(folder, shape.name + ".img")
        self.listing = os.path.join(folder, shape.name + ".list")
        self.notes = []
        self.mask = frozenset()

    def make(self):
        if self.shape.filled_by == "mke2fs":
            self.fill_by_mke2fs()
        else:
            self.format([])
            try:
                self.fill_by_kernel()
            except Failure as failure:
                if self.shape.filled_by != "either" or "wrong fs type" not in str(failure):
                    raise
                self.notes.append("the kernel refuses to mount this shape: filled by mke2fs -d, "
                                  "compared with the host tree")
                self.fill_by_mke2fs()
        self.finish()
        run(["e2fsck", "-fn", self.image])

    def format(self, extra):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.image)
        run(["truncate", "-s", self.shape.size, self.image])
        run(["mke2fs", "-q", "-F", *self.shape.mke2fs, *extra, self.image])

    def fill_by_kernel(self):
        with loop_device(self.image) as device:
            with kernel_mount(device, self.work, "rw") as point:
                _, summary, _ = run([tool("filltree"), *self.shape.fill, point])
                self.notes.append(summary.strip())
            with kernel_mount(device, self.work, "ro") as point:
                run([tool("hostlist"), point], output=self.listing)

    def fill_by_mke2fs(self):
        tree = os.path.join(self.work, "tree")
        os.makedirs(tree)
        try:
            _, summary, _ = run([tool("filltree"), "--plain", *self.shape.fill, tree])
            self.notes.append(summary.strip())
            run([tool("hostlist"), tree], output=self.listing)
            self.format(["-d", tree])
        finally:
            clear_folder(tree)
        self.mask = MKE2FS_MASK

    def finish(self):
        if self.shape.after == "casefold":
            run(["tune2fs", "-O", "casefold", "-E", "encoding=utf8", self.image])
            _, text, _ = run(["debugfs", "-R", "stat /folded", self.image])
            flags = int(text.split("Flags:")[1].split()[0], 16) | 0x40000000
            run(["debugfs", "-w", "-R", f"set_inode_field /folded flags 0x{flags:x}", self.image])
            run(["e2fsck", "-fyD", self.image], ok=(0, 1))
            self.mask = CASEFOLD_MASK
            self.notes.append("/folded was made case-folding with tune2fs, debugfs and e2fsck -D")
        elif self.shape.after != "-":
            run(["tune2fs", *shlex.split(self.shape.after), self.image])


def read_listing(path, mask):
    """Lines by path, with what `mask` names replaced by "-" or left out."""
    lines = {}
    columns = [COLUMN[name] for name in mask if name in COLUMN]
    with open(path, encoding="ascii") as listing:
        for line in listing:
            fields = line.rstrip("\n").split("\t")
            name = fields[0]
            if ("root" in mask and name == "/") or name in mask or name.lstrip("/") in mask:
                continue
            if name in lines:
                raise Failure(f"{name} is listed twice")
            for column in columns:
                fields[column] = "-"
            if fields[COLUMN["type"]] == "d":
                if "dirsize" in mask:
                    fields[COLUMN["size"]] = "-"
                if "dirblocks" in mask:
                    fields[COLUMN["blocks"]] = "-"
            if "bigxattr" in mask and name.startswith("/bigxattr/"):
                fields[COLUMN["xattrs"]] = "-"
            lines[name] = fields
    return lines


def compare(expected_path, found_path, mask):
    """Returns a list of messages, empty if the listings agree."""
    expected = read_listing(expected_path, mask)
    found = read_listing(found_path, mask)
    messages = []
    if len(expected) < 2000:
        messages.append(f"the expectation has only {len(expected)} entries")
    messages += difference_messages(expected, found)
    if len(messages) > 20:
        messages[20:] = [f"... {len(messages) - 20} more differences"]
    return messages


def difference_messages(expected, found):
    messages = []
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            messages.append(f"missing: {name}")
        elif name not in expected:
            messages.append(f"too much: {name}")
        elif expected[name] != found[name]:
            messages += [f"{name}: {field}: expected {left[:120]}, found {right[:120]}"
                         for field, left, right in zip(FIELDS, expected[name], found[name])
                         if left != right]
    return messages


def shorten(line):
    return line if len(line) <= 300 else f"{line[:140]} ... {line[-150:]}"


class Comparer:
    """Runs the checks of one shape and prints TAP lines."""

    def __init__(self, maker, out, first_number):
        self.maker = maker
        self.out = out
        self.number = first_number
        self.failures = 0
        self.program = os.environ.get("UEXT4_BIN") or ""
        self.found = os.path.join(maker.work, "found.list")

    def say(self, check, messages=(), skip=None):
        name = f"{self.maker.shape.name} {check}"
        verdict = "not ok" if messages else "ok"
        suffix = f" # SKIP {skip}" if skip else ""
        self.out.write(f"{verdict} {self.number} - {name}{suffix}\n")
        for message in messages:
            self.out.writelines(f"#   {shorten(line)}\n" for line in message.splitlines())
        self.out.flush()
        self.number += 1
        self.failures += bool(messages)

    def attempt(self, check, method):
        try:
            self.say(check, method())
        except (Failure, OSError, UnicodeDecodeError) as failure:
            self.say(check, [str(failure)])

    def run(self):
        before = os.stat(self.maker.image)
        if self.program:
            self.attempt("library", self.check_library)
            self.attempt("get", self.check_get)
            if os.path.exists("/dev/fuse"):
                self.attempt("mount", self.check_mount)
            else:
                self.say("mount", skip="no /dev/fuse")
        else:
            for check in CHECKS[:3]:
                self.say(check, skip="UEXT4_BIN is not set")
        after = os.stat(self.maker.image)
        self.say("image untouched",
                 ["the image was written to"] if before.st_mtime_ns != after.st_mtime_ns else [])
        if self.maker.shape.after == "casefold":
            if self.program:
                self.attempt("case-folding look-up", self.check_casefold)
            else:
                self.say("case-folding look-up", skip="UEXT4_BIN is not set")

    def compare_found(self, mask, status, errors):
        messages = compare(self.maker.listing, self.found, mask | self.maker.mask)
        if messages or status:
            messages += [f"exit status {status}"] if status else []
            messages += [f"stderr: {line}" for line in errors.splitlines()[:10]]
        return messages

    def check_library(self):
        status, _, errors = run([tool("liblist"), "--threads", "4", self.maker.image], ok=None,
                                output=self.found)
        return self.compare_found(frozenset(), status, errors)

    def check_get(self):
        tree = os.path.join(self.maker.work, "got")
        try:
            status, _, errors = run([self.program, "get", self.maker.image, "/", tree], ok=None)
            # The host may lack room for the attributes below /bigxattr; get must name them.
            complaints = [line for line in errors.splitlines() if "/" in line]
            if complaints and all("/bigxattr/" in line for line in complaints):
                status = 0
            run([tool("hostlist"), tree], output=self.found)
            return self.compare_found(GET_MASK, status, errors)
        finally:
            clear_folder(tree)

    def check_mount(self):
        point = os.path.join(self.maker.work, "fuse")
        os.makedirs(point, exist_ok=True)
        run([self.program, "mount", self.maker.image, point])
        try:
            if not os.path.ismount(point):
                raise Failure("mount: exit status 0, but nothing is mounted")
            status, _, errors = run([tool("hostlist"), point], ok=None, output=self.found)
            run([self.program, "umount", point])
            if os.path.ismount(point):
                raise Failure("umount: exit status 0, but it is still mounted")
            return self.compare_found(frozenset(), status, errors)
        finally:
            if os.path.ismount(point):
                run(["umount", "-l", point], ok=None, is_cleanup=True)

    def check_casefold(self):
        messages = []
        for name, is_there in (("STRASSE", True), ("stra\u00dfe", True), ("\u00e9t\u00e9", True),
                               ("E\u0301TE\u0301", True), ("mixed-case-a-0", True),
                               ("MIXED-CASE-N-299", True), ("mixed-case-a-1", False)):
            status, _, errors = run([self.program, "stat", self.maker.image, f"/folded/{name}"],
                                    ok=None)
            if (status == 0) != is_there:
                messages.append(f"stat /folded/{name}: exit status {status} {errors.strip()}")
        status, _, _ = run([self.program, "stat", self.maker.image, "/SIZES"], ok=None)
        if status == 0:
            messages.append("/SIZES was found in a directory that does not fold case")
        return messages


def skip_reason():
    if os.geteuid():
        return "needs root"
    if not os.path.exists("/dev/loop-control"):
        return "no loop devices"
    missing = [name for name in ("mke2fs", "e2fsck", "tune2fs", "debugfs", "mount")
               if not shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")]
    return f"{missing[0]} is not installed" if missing else None


def test_shape(shape, keep, out, first_number):
    """Prints the TAP lines of a shape; returns the number of failures."""
    started = time.monotonic()
    work = tempfile.mkdtemp(prefix="uext4-matrix-")
    try:
        maker = Maker(shape, keep or work, work)
        try:
            maker.make()
        except Failure as failure:
            out.write("".join(f"# {line}\n" for line in str(failure).splitlines()))
            for number, check in enumerate(shape.checks(), first_number):
                out.write(f"not ok {number} - {shape.name} {check}: the image could not be made\n")
            return len(shape.checks())
        made = time.monotonic()
        out.write("".join(f"# {shape.name}: {note}\n" for note in maker.notes))
        comparer = Comparer(maker, out, first_number)
        comparer.run()
        out.write(f"# {shape.name}: made in {made - started:.1f} s, compared in "
                  f"{time.monotonic() - made:.1f} s\n")
        return comparer.failures
    finally:
        clear_work(work)


def clear_work(work):
    """Unmounts what an interrupted step left, then removes the folder."""
    for name in ("kernel", "fuse"):
        point = os.path.join(work, name)
        if os.path.ismount(point):
            run(["umount", "-l", point], ok=None, is_cleanup=True)
    clear_folder(work)


def only_make(shapes, folder):
    os.makedirs(folder, exist_ok=True)
    for shape in shapes:
        work = tempfile.mkdtemp(prefix="uext4-matrix-")
        try:
            maker = Maker(shape, folder, work)
            maker.make()
            for note in maker.notes:
                print(f"{shape.name}: {note}")
        finally:
            clear_work(work)


def test_all(shapes, keep, jobs):
    numbers = [1]
    for shape in shapes:
        numbers.append(numbers[-1] + len(shape.checks()))
    print(f"1..{numbers[-1] - 1}", flush=True)

    def one(index):
        out = io.StringIO()
        failures = test_shape(shapes[index], keep, out, numbers[index])
        return out.getvalue(), failures

    failures = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for text, count in pool.map(one, range(len(shapes))):
            sys.stdout.write(text)
            sys.stdout.flush()
            failures += count
    return failures


def spoil_cases(point):
    """Small changes below a mount, each with the path and field that a comparison must name."""
    def keep_times(path, change):
        state = os.stat(path, follow_symlinks=False)
        change(path)
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns), follow_symlinks=False)

    def flip_byte(path):
        with open(path, "r+b") as file:
            file.seek(777777)
            byte = file.read(1)[0]
            file.seek(777777)
            file.write(bytes([byte ^ 1]))

    def fill_hole(path):
        with open(path, "r+b") as file:
            file.seek(500000)
            file.write(b"\0")

    def set_attribute(path):
        os.setxattr(path, "user.s", b"other")

    def file(path):
        return os.path.join(point, path)

    return (
        ("/sizes/1048577", "content", lambda: keep_times(file("sizes/1048577"), flip_byte)),
        ("/sparse/middle", "map", lambda: keep_times(file("sparse/middle"), fill_hole)),
        ("/xattrs/small20", "xattrs", lambda: keep_times(file("xattrs/small20"), set_attribute)),
        ("/modes/mode03", "mode", lambda: os.chmod(file("modes/mode03"), 0o7070)),
        ("/modes/mode04", "uid", lambda: os.chown(file("modes/mode04"), 77777, -1)),
        ("/times/0.000000001", "mtime",
         lambda: os.utime(file("times/0.000000001"), ns=(0, 2))),
        ("/links/first", "nlink", lambda: os.link(file("links/first"), file("links/new"))),
        ("/links/other/third", "nlink", lambda: None),
        ("/symlinks/relative00", "content", lambda: os.rename(file("symlinks/relative01"),
                                                              file("symlinks/relative00"))),
        ("missing: /symlinks/relative01", "", lambda: None),
        ("too much: /links/new", "", lambda: None),
        ("missing: /many/dir00", "", lambda: shutil.rmtree(file("many/dir00"))),
    )


def self_test():
    """Shows that the comparison holds where trees are equal and fails where they are not."""
    shape = next(shape for shape in read_shapes() if shape.name == "ext4-1k")
    work = tempfile.mkdtemp(prefix="uext4-matrix-")
    found = os.path.join(work, "found.list")
    failed = 0
    try:
        maker = Maker(shape, work, work)
        maker.make()
        with loop_device(maker.image) as device:
            with kernel_mount(device, work, "ro") as point:
                run([tool("hostlist"), point], output=found)
                run(["cp", "-a", point, os.path.join(work, "got")], ok=(0, 1))
            same = compare(maker.listing, found, frozenset())
            run([tool("hostlist"), os.path.join(work, "got")], output=found)
            copied = compare(maker.listing, found, GET_MASK)
            with kernel_mount(device, work, "rw") as point:
                cases = spoil_cases(point)
                for _, _, change in cases:
                    change()
            with kernel_mount(device, work, "ro") as point:
                run([tool("hostlist"), point], output=found)
        expected, spoiled = (read_listing(path, frozenset()) for path in (maker.listing, found))
        messages = difference_messages(expected, spoiled)
        results = [("a second mount lists the same", same), ("a copy by cp lists the same", copied)]
        for path, field, _ in cases:
            start = f"{path}: {field}: " if field else path
            results.append((f"noticed: {start}", [] if any(m.startswith(start) for m in messages)
                            else ["no message begins so"]))
        print(f"1..{len(results)}")
        for number, (name, problems) in enumerate(results, 1):
            print(f"{'not ok' if problems else 'ok'} {number} - {name.rstrip(': ')}")
            print("".join(f"#   {problem}\n" for problem in problems), end="")
            failed += bool(problems)
        return failed
    finally:
        clear_work(work)


def stop(number, _frame):
    PROCESSES.stop()
    raise SystemExit(128 + number)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--list", action="store_true", help="print the names of the shapes")
    choice.add_argument("--shape", metavar="NAME", help="test one shape")
    choice.add_argument("--all", action="store_true", help="test all shapes")
    choice.add_argument("--self-test", action="store_true",
                        help="test the listing and the comparison with the kernel alone")
    parser.add_argument("--jobs", type=int, default=2, help="shapes at a time (with --all)")
    parser.add_argument("--keep", metavar="DIR", help="leave images and listings in DIR")
    parser.add_argument("--only-make", metavar="DIR",
                        help="make images and listings in DIR and compare nothing")
    options = parser.parse_args()

    shapes = read_shapes()
    if options.list:
        print("\n".join(shape.name for shape in shapes))
        return 0
    if options.shape:
        shapes = [shape for shape in shapes if shape.name == options.shape]
        if not shapes:
            parser.error(f"no shape {options.shape}")
    reason = skip_reason()
    if reason:
        print(f"1..0 # SKIP {reason}")
        return 0
    os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    if options.self_test:
        return 1 if self_test() else 0
    if options.only_make:
        only_make(shapes, options.only_make)
        return 0
    if options.keep:
        os.makedirs(options.keep, exist_ok=True)
    return 1 if test_all(shapes, options.keep, options.jobs) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"matrix.py: {failure}")
