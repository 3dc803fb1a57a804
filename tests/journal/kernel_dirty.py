#!/usr/bin/env python3
"""Recovers file systems as the kernel leaves them when the power fails.

An ext image on an XFS file system is mounted through a loop device, a workload runs in it, and `cp
--reflink=always` takes snapshots meanwhile: what a disk would hold if it stopped right then. The
library's read-only view of each snapshot must be what `uext4 recover` makes of it and what `e2fsck
-p` (with fast_commit: a mount by the kernel) makes of it, and must not change the snapshot. The
recovered image must equal that of debugfs's replay, block by block but for the superblock, and
e2fsck must find nothing in it. Pending fast commits must be refused by name, and nothing written.

The seed fixes the workload; when a snapshot is taken depends on the machine. No file is unlinked
while it is open, so orphans are rare: they are what an unlink or truncate leaves between two
transactions. Needs root, loop devices and XFS. Environment: UEXT4_BIN, UEXT4_LIST (the liblist
program).
"""
import argparse
import collections
import contextlib
import errno
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / 'images'))
from image_tools import (JournalSuperblock, block_size, changed_blocks,  # noqa: E402
                         copy_image, journal_blocks, run, run_checked, spoil_byte)
from shared_images import Tap, skip_all  # noqa: E402

JOURNAL_MAGIC = bytes.fromhex('c03b3998')
XFS_BYTES = 2 << 30
IMAGE_BYTES = 48 << 20
# Name: arguments of mke2fs, mount options.
SETUPS = {
    '1k v3 64bit, all data in the journal':
        ('-b 1024 -O 64bit,metadata_csum -J size=1', 'data=journal'),
    '1k no checksum 32bit, all data in the journal':
        ('-b 1024 -O ^64bit,^metadata_csum -J size=1', 'data=journal'),
    '4k v3 64bit':
        ('-b 4096 -O 64bit,metadata_csum -J size=4', 'data=ordered'),
    '4k no checksum 64bit, all data in the journal':
        ('-b 4096 -O 64bit,^metadata_csum -J size=4', 'data=journal'),
    '4k v1 32bit, all data in the journal':
        ('-b 4096 -O ^64bit,^metadata_csum -J size=4', 'data=journal,journal_checksum'),
    '1k v1 64bit, asynchronous commits':
        ('-b 1024 -O 64bit,^metadata_csum -J size=2', 'data=writeback,journal_async_commit'),
    '4k v3 32bit, all data in the journal':
        ('-b 4096 -O ^64bit,metadata_csum -J size=4', 'data=journal'),
    'ext3 1k, a journal mapped by indirect blocks':
        ('-t ext3 -b 1024 -J size=1', 'data=journal'),
    '4k v3 64bit, asynchronous commits':
        ('-b 4096 -O 64bit,metadata_csum -J size=4', 'data=writeback,journal_async_commit'),
    '1k v3 64bit, fast commits':
        ('-b 1024 -O 64bit,metadata_csum,fast_commit -J size=4', 'data=ordered'),
}
REPLAYED = re.compile(rb'replayed (\d+) transactions?: (\d+) blocks? written, (\d+) revoked')
# The kernel does not journal these two sums: it takes them from the groups at each mount.
STALE_SUMS = re.compile(r'Free (blocks|inodes) count wrong \(\d+, counted=\d+\)\.')
SMALL_TALK = re.compile(r'Pass \d|Fix\? no|.*WARNING: Filesystem still has errors|'
                        r'.* files \(.*% non-contiguous\), |$')


class Workload:
    """Makes, overwrites and removes files and directories in a thread, between `with` and its end.

    `pause` is held during each operation."""

    def __init__(self, mount_point, rnd):
        self.rnd = rnd
        self.root = mount_point
        self.files = []
        self.folders = []
        self.pause = threading.Lock()
        self.is_over = threading.Event()
        self.failure = None
        self.thread = threading.Thread(target=self.work)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.is_over.set()
        self.thread.join()

    def work(self):
        number = 0
        while not self.is_over.is_set() and self.failure is None:
            number += 1
            with self.pause:
                try:
                    self.operation(number)
                except OSError as error:
                    if error.errno == errno.ENOSPC:
                        self.make_room()
                    else:
                        self.failure = error

    def operation(self, number):
        choice = self.rnd.random()
        if choice < 0.15 and len(self.folders) < 60:
            self.make_folder(number)
        elif choice < 0.30 and self.folders:
            self.remove_folder(self.rnd.choice(self.folders))
        elif choice < 0.45 and self.files:
            os.unlink(self.files.pop(self.rnd.randrange(len(self.files))))
        else:
            self.write_file(number)

    def make_folder(self, number):
        folder = '%s/d%d' % (self.rnd.choice([self.root] + self.folders), number)
        os.mkdir(folder)
        self.folders.append(folder)
        for entry in range(self.rnd.randrange(60)):
            name = 'x' * self.rnd.randrange(1, 120) + str(entry)
            with open('%s/%s' % (folder, name), 'w'):
                pass

    def remove_folder(self, folder):
        shutil.rmtree(folder)
        inside = folder + '/'
        self.folders = [name for name in self.folders
                        if name != folder and not name.startswith(inside)]
        self.files = [name for name in self.files if not name.startswith(inside)]

    def write_file(self, number):
        """Writes pieces to a file. Half of them begin as the journal's own blocks do."""
        if self.files and self.rnd.random() < 0.3:
            name = self.rnd.choice(self.files)
        else:
            name = '%s/f%d' % (self.rnd.choice([self.root] + self.folders), number)
        handle = os.open(name, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            if name not in self.files:
                self.files.append(name)
            for _ in range(self.rnd.randrange(1, 12)):
                piece = self.rnd.randbytes(self.rnd.randrange(10, 9000))
                if self.rnd.random() < 0.5:
                    piece = JOURNAL_MAGIC + piece
                os.pwrite(handle, piece, self.rnd.randrange(64) * 4096)
            if self.rnd.random() < 0.5:
                os.fsync(handle)
        finally:
            os.close(handle)

    def make_room(self):
        half = len(self.files) // 2
        for name in self.files[:half]:
            os.unlink(name)
        self.files = self.files[half:]


def mounted(stack, image, mount_point, options):
    """Mounts an image until the stack ends. Gives an empty string, or why it cannot be."""
    code, _, error = run('mount', '-o', 'loop,' + options, image, mount_point)
    if code != 0:
        return error.strip()

    def unmount():
        for _ in range(20):
            if run('umount', mount_point)[0] == 0:
                return
            time.sleep(0.1)
        run('umount', '-l', mount_point)
        raise RuntimeError('%s was busy' % mount_point)
    stack.callback(unmount)
    return ''


def take_snapshots(folder, mount_point, setup, rnd, count):
    """Runs the workload. Gives the snapshots, and why the kernel does not take this setup."""
    arguments, options = SETUPS[setup]
    image = os.path.join(folder, 'live.img')
    with open(image, 'wb') as file:
        file.truncate(IMAGE_BYTES)
    kind = [] if '-t' in arguments else ['-t', 'ext4']
    run_checked('mke2fs', '-q', '-F', *kind, *arguments.split(), image)
    snapshots = []
    with contextlib.ExitStack() as stack:
        refusal = mounted(stack, image, mount_point, options)
        if refusal:
            return [], refusal
        with Workload(mount_point, rnd) as workload:
            time.sleep(0.4)
            for number in range(count):
                time.sleep(0.1 + rnd.random() * 0.4)
                snapshot = os.path.join(folder, 'snapshot%d.img' % number)
                # After a whole commit no fast commits are pending.
                is_quiet = 'fast_commit' in arguments and number % 2 == 1
                with workload.pause if is_quiet else contextlib.nullcontext():
                    if is_quiet:
                        run_checked('sync', '-f', mount_point)
                    run_checked('cp', '--reflink=always', image, snapshot)
                snapshots.append(snapshot)
        if workload.failure is not None:
            raise workload.failure
    os.unlink(image)
    return snapshots, ''


def superblock_facts(image):
    """The features of a file system, and whether it has orphans."""
    out = run_checked('dumpe2fs', '-h', image).decode(errors='replace')
    features = re.search(r'^Filesystem features:(.*)$', out, re.M)[1].split()
    return features, 'First orphan inode:' in out or 'orphan_present' in features


def journal_facts(image):
    """How many blocks the log has escaped, and whether it goes on at its beginning."""
    out = run('debugfs', '-n', '-R', 'logdump -a', image)[1].decode(errors='replace')
    escaped = sum(int(flags, 16) & 1 for flags in
                  re.findall(r'logged at .*\(flags (0x[0-9a-f]+)\)', out))
    places = [int(place) for place in re.findall(r'^Found .* at block (\d+)', out, re.M)]
    return escaped, any(later < earlier for earlier, later in zip(places, places[1:]))


def kernel_replay(image, mount_point):
    """Has the kernel mount and unmount an image. Gives what it said if it does not."""
    with contextlib.ExitStack() as stack:
        return mounted(stack, image, mount_point, 'noatime')


def complaints(image):
    """What e2fsck finds in an image beside what a mount sets right."""
    _, out, error = run('e2fsck', '-fn', image)
    lines = (out.decode(errors='replace')).splitlines()
    return [line for line in lines
            if not STALE_SUMS.match(line) and not SMALL_TALK.match(line)]


class SnapshotCheck:
    """The checks of one snapshot, with copies beside it."""

    def __init__(self, tap, name, source, mount_point, totals, is_spoiled):
        self.tap, self.name, self.source, self.mount_point = tap, name, source, mount_point
        self.totals, self.is_spoiled = totals, is_spoiled
        self.block_bytes = block_size(source)
        self.features, _ = superblock_facts(source)

    def copy(self, suffix):
        target = self.source + suffix
        copy_image(self.source, target)
        return target

    def run(self):
        ours, view = self.copy('.ours'), self.copy('.view')
        code, dirty_listing, error = run(os.environ['UEXT4_LIST'], view)
        changed = changed_blocks(self.source, view, self.block_bytes)
        self.tap.result(code == 0 and not changed and dirty_listing.count(b'\n') > 2,
                        '%s: a read-only view, and the image as it was' % self.name,
                        [error] + changed)
        self.totals['dirty'] += 'needs_recovery' in self.features
        code, out, error = run(os.environ['UEXT4_BIN'], 'recover', ours)
        if 'fast_commit' in self.features and code != 0:
            self.check_refusal(ours, code, error)
            return
        report = REPLAYED.search(out)
        if report is not None:
            for key, number in zip(('transactions', 'blocks', 'revoked'), report.groups()):
                self.totals[key] += int(number)
        escaped, is_wrapped = journal_facts(self.source)
        self.totals['escaped'] += escaped
        self.totals['wrapped'] += is_wrapped
        if self.is_spoiled:
            spoil_byte(ours, IMAGE_BYTES - 1)
        self.check_blocks(ours, code, report, error)
        self.check_listings(ours, dirty_listing)
        self.check_with_e2fsck(ours)

    def check_refusal(self, ours, code, error):
        changed = changed_blocks(self.source, ours, self.block_bytes)
        self.totals['refused'] += 1
        self.tap.result(code == 1 and 'fast commits are pending' in error and not changed,
                        '%s: pending fast commits are refused' % self.name,
                        ['exit code %d: %s' % (code, error)] + changed)

    def check_blocks(self, ours, code, report, error):
        theirs = self.copy('.theirs')
        _, out, said = run('debugfs', '-n', '-w', '-R', 'jr', theirs)
        journal = min(journal_blocks(self.source))
        excluded = {1024 // self.block_bytes}
        # With fast_commit debugfs 1.47 replays all transactions, but counts one of them.
        if 'fast_commit' in self.features:
            excluded.add(journal)
        # Half-written group descriptors can stop debugfs. Then only the other checks count.
        if JournalSuperblock(theirs, journal, self.block_bytes).start != 0:
            self.totals['not compared'] += 1
            self.tap.skip('%s: as debugfs replays it' % self.name,
                          'debugfs replays nothing: ' + ' '.join(said.split()))
            problems = []
        else:
            self.totals['compared'] += 1
            problems = ['block %d differs' % block
                        for block in changed_blocks(ours, theirs, self.block_bytes)
                        if block not in excluded]
        if code != 0 or report is None:
            problems.append('exit code %d: %s' % (code, error))
        else:
            old, new = (JournalSuperblock(image, journal, self.block_bytes)
                        for image in (self.source, ours))
            if new.start != 0 or new.sequence != old.sequence + int(report[1]) + 1:
                problems.append('the journal goes on with %d at block %d, after %d' %
                                (new.sequence, new.start, old.sequence))
        what = report[0].decode() if report else 'nothing'
        self.tap.result(not problems, '%s: replayed right (%s)' % (self.name, what),
                        [out, said] + problems)

    def check_listings(self, ours, dirty_listing):
        repaired, details = self.copy('.repaired'), []
        # e2fsck 1.47 fails on fast commits that an earlier transaction has made void.
        if 'fast_commit' in self.features:
            other, refusal = 'the kernel', kernel_replay(repaired, self.mount_point)
            if refusal:
                details.append(refusal)
        else:
            other = 'e2fsck'
            code, out, error = run('e2fsck', '-fp', repaired)
            if code > 1:
                details.append('e2fsck: exit code %d: %s' % (code, out))
        if self.is_spoiled:
            dirty_listing += b'spoiled\n'
        for who, image in (('recover', ours), (other, repaired)):
            code, listing, error = run(os.environ['UEXT4_LIST'], image)
            if code != 0 or listing != dirty_listing:
                lines = set(listing.splitlines()) ^ set(dirty_listing.splitlines())
                details += ['after %s: %s' % (who, error)] + sorted(lines)
        self.tap.result(not details, '%s: the view is what recover and %s make of it, %d names'
                        % (self.name, other, dirty_listing.count(b'\n')), details)

    def check_with_e2fsck(self, ours):
        _, has_orphans = superblock_facts(ours)
        name = '%s: e2fsck finds nothing' % self.name
        problems = []
        if has_orphans:
            name += ' but orphans'
            self.totals['with orphans'] += 1
            code, out, _ = run('e2fsck', '-fp', ours)
            if code > 1:
                problems.append('e2fsck -fp: exit code %d: %s' % (code, out))
        if self.is_spoiled:
            # The first bytes of the first group's block bitmap, by the first group descriptor.
            with open(ours, 'rb') as file:
                table = os.pread(file.fileno(), 4, max(2048, self.block_bytes))
            spoil_byte(ours, int.from_bytes(table, 'little') * self.block_bytes)
        problems += complaints(ours)
        self.tap.result(not problems, name, problems)


def make_xfs(stack):
    """Mounts an XFS file system until the stack ends. Gives its mount point and one for ext."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix='uext4-kernel-'))
    disk, xfs, ext = (os.path.join(folder, name) for name in ('xfs.img', 'xfs', 'ext'))
    with open(disk, 'wb') as file:
        file.truncate(XFS_BYTES)
    os.mkdir(xfs)
    os.mkdir(ext)
    run_checked('mkfs.xfs', '-q', '-m', 'reflink=1', disk)
    refusal = mounted(stack, disk, xfs, 'noatime')
    if refusal:
        skip_all('no XFS or no loop devices here: ' + refusal.splitlines()[0])
    return xfs, ext


def end_on_signals():
    """Turns signals into exceptions, so that what is mounted is unmounted."""
    def end(number, _):
        for other in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(other, signal.SIG_IGN)
        print('Bail out! signal %d' % number, flush=True)
        sys.exit(128 + number)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)


def check_setup(tap, xfs, ext, setup, options, totals):
    rnd = random.Random('%d %s' % (options.seed, setup))
    snapshots, refusal = take_snapshots(xfs, ext, setup, rnd, options.snapshots)
    if refusal:
        tap.skip(setup, 'the kernel does not mount it: ' + refusal.splitlines()[0])
        return
    for number, snapshot in enumerate(snapshots):
        name = '%s #%d' % (setup, number)
        SnapshotCheck(tap, name, snapshot, ext, totals, options.spoil).run()
    for path in pathlib.Path(xfs).glob('snapshot*'):
        path.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seed', type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument('--snapshots', type=int, default=2, help='of each setup')
    parser.add_argument('--only', default='', help='only setups whose name holds this')
    parser.add_argument('--spoil', action='store_true',
                        help='change bytes of each result: every comparison must fail')
    options = parser.parse_args()
    if os.geteuid() != 0:
        skip_all('needs root')
    for program in ('mkfs.xfs', 'mke2fs', 'e2fsck', 'debugfs', 'mount'):
        if shutil.which(program) is None:
            skip_all('no %s program' % program)
    print('# seed %d' % options.seed, flush=True)
    end_on_signals()
    tap = Tap()
    totals = collections.Counter()
    with contextlib.ExitStack() as stack:
        xfs, ext = make_xfs(stack)
        for setup in SETUPS:
            if options.only in setup:
                check_setup(tap, xfs, ext, setup, options, totals)
    print('# ' + ', '.join('%d %s' % (number, key) for key, number in totals.items()))
    wanted = ['transactions'] if options.only else ['transactions', 'escaped', 'revoked', 'wrapped']
    missing = [key for key in wanted if totals[key] == 0]
    if totals['not compared'] * 4 > totals['compared']:
        missing.append('enough comparisons')
    tap.result(not missing, 'the run had ' + ', '.join(wanted), ['none: ' + key for key in missing])
    return tap.end()


if __name__ == '__main__':
    sys.exit(main())
