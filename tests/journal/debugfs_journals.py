#!/usr/bin/env python3
"""Replays journals that debugfs wrote, and breaks the replay off at each of its writes.

Random transactions over few blocks, with revokes and with blocks that begin with the journal's own
magic number, in every kind of journal that debugfs writes. `uext4 recover` must leave the same
blocks as debugfs's replay, except the superblock. A recovery of which write N and all later ones
fail must say so, and the next recovery must end with the same bytes as one that was never broken
off, for every N. One field may differ: a recovery that finds the journal empty already moves its
sequence number on by one, as e2fsck does. Environment: UEXT4_BIN.
"""
import argparse
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / 'images'))
from image_tools import (JournalSuperblock, changed_blocks, copy_image,  # noqa: E402
                         journal_blocks, run, run_checked, spoil_byte)
from shared_images import Tap, skip_all  # noqa: E402

JOURNAL_MAGIC = bytes.fromhex('c03b3998')
IMAGE_BYTES = 64 << 20
# Blocks that belong to no journal and no inode table, by block size.
FIRST_TARGET = {1024: 30000, 4096: 9000}
TARGETS = 60
OPEN_JOURNAL = {'none': 'jo', 'v2': 'jo -c -v 2', 'v3': 'jo -c -v 3'}
MAX_WRITES = 200
IO_ERROR = re.compile(r'Input/output error')
REPLAYED = re.compile(rb'replayed (\d+) transactions?: (\d+) blocks? written, (\d+) revoked')


def make_image(image, block_bytes, checksum, is_64bit):
    """A file system without files."""
    with open(image, 'wb') as file:
        file.truncate(IMAGE_BYTES)
    features = '%s64bit,%smetadata_csum' % ('' if is_64bit else '^',
                                            '^' if checksum == 'none' else '')
    run_checked('mke2fs', '-q', '-F', '-t', 'ext4', '-b', str(block_bytes), '-O', features,
                '-J', 'size=4', image)


def random_targets(rnd, block_bytes, most):
    """Some of the target blocks, in order."""
    count = rnd.randrange(1, most)
    return sorted({FIRST_TARGET[block_bytes] + rnd.randrange(TARGETS) for _ in range(count)})


def write_data(rnd, path, block_bytes, count):
    """A file of random blocks, of which some must be escaped in a journal."""
    with open(path, 'wb') as file:
        for _ in range(count):
            block = rnd.randbytes(block_bytes)
            file.write(JOURNAL_MAGIC + block[4:] if rnd.random() < 0.4 else block)


def write_journal(rnd, folder, image, block_bytes, checksum):
    """Has debugfs write random transactions, of which the first holds data."""
    commands = [OPEN_JOURNAL[checksum]]
    for number in range(rnd.randrange(4, 9)):
        if number > 0 and rnd.random() < 0.35:
            blocks = random_targets(rnd, block_bytes, 20)
            commands.append('jw -r ' + ','.join(map(str, blocks)))
            continue
        blocks = random_targets(rnd, block_bytes, 30)
        data = os.path.join(folder, 'data%d' % number)
        write_data(rnd, data, block_bytes, len(blocks))
        # With -c debugfs writes no commit block: this transaction must not be replayed.
        option = '-c ' if number > 0 and rnd.random() < 0.1 else ''
        commands.append('jw -b %s %s%s' % (','.join(map(str, blocks)), option, data))
    commands.append('jc')
    script = os.path.join(folder, 'commands')
    pathlib.Path(script).write_text('\n'.join(commands) + '\n')
    run_checked('debugfs', '-w', '-f', script, image)


def break_off(source, image, at):
    """A recovery whose writes fail from number `at` on. None if it did not need so many."""
    copy_image(source, image)
    spec = 'fault(op=write,at=%d,count=0):file:%s' % (at, image)
    code, _, error = run(os.environ['UEXT4_BIN'], 'recover', spec)
    if code == 0:
        return None
    return [] if code == 1 and IO_ERROR.search(error) else ['write %d: exit code %d: %s'
                                                            % (at, code, error)]


def differences(recovered, broken, journal, block_bytes, was_empty):
    """The blocks of an image recovered twice that are not as in one recovered once."""
    blocks = changed_blocks(recovered, broken, block_bytes)
    once, twice = (JournalSuperblock(image, journal, block_bytes) for image in (recovered, broken))
    if was_empty and twice.sequence == once.sequence + 1 and twice.rest == once.rest:
        blocks.remove(journal)
    return blocks


def check_broken_off(tap, name, source, recovered, broken, block_bytes, is_spoiled):
    """Every place where the writes of a recovery can end. Gives how many there are."""
    problems = []
    journal = min(journal_blocks(source))
    for at in range(1, MAX_WRITES):
        failure = break_off(source, broken, at)
        was_empty = failure is not None and JournalSuperblock(broken, journal,
                                                              block_bytes).start == 0
        if failure is not None:
            problems += failure
            code, _, error = run(os.environ['UEXT4_BIN'], 'recover', broken)
            if code != 0:
                problems.append('after write %d failed: exit code %d: %s' % (at, code, error))
        if is_spoiled:
            spoil_byte(broken, FIRST_TARGET[block_bytes] * block_bytes)
        problems += ['after write %d failed: block %d differs' % (at, block)
                     for block in differences(recovered, broken, journal, block_bytes,
                                              was_empty)]
        if failure is None:
            break
    else:
        problems.append('it fails even if only write %d does' % MAX_WRITES)
    # One run of blocks at least, the journal's superblock, the superblock.
    if at <= 3:
        problems.append('only %d writes' % (at - 1))
    tap.result(not problems, '%s: broken off at each of %d writes' % (name, at - 1), problems)
    return at - 1


def check_journal(tap, folder, seed, kind, is_spoiled):
    """One journal. Gives what was replayed, and after how many writes it was broken off."""
    block_bytes, checksum, is_64bit = kind
    name = '%d %s %s-bit' % (block_bytes, checksum, 64 if is_64bit else 32)
    rnd = random.Random('%d %s' % (seed, name))
    image, ours, theirs, broken = (os.path.join(folder, file)
                                   for file in ('image', 'ours', 'theirs', 'broken'))
    make_image(image, block_bytes, checksum, is_64bit)
    write_journal(rnd, folder, image, block_bytes, checksum)
    copy_image(image, ours)
    copy_image(image, theirs)

    code, out, error = run(os.environ['UEXT4_BIN'], 'recover', ours)
    _, jr_out, jr_error = run('debugfs', '-w', '-R', 'jr', theirs)
    if is_spoiled:
        spoil_byte(ours, (FIRST_TARGET[block_bytes] + 1) * block_bytes)
    problems = ['block %d differs' % block for block in changed_blocks(ours, theirs, block_bytes)
                if block != 1024 // block_bytes]
    report = REPLAYED.search(out)
    if code != 0 or report is None:
        problems += ['exit code %d: %s%s' % (code, out, error)]
    counts = [int(number) for number in report.groups()] if report else [0, 0, 0]
    replay = '%d transactions, %d blocks, %d revoked' % tuple(counts)
    if counts[0] == 0 or not changed_blocks(image, theirs, block_bytes):
        problems.append('nothing was replayed: %s%s' % (jr_out, jr_error))
    tap.result(not problems, '%s: as debugfs replays it (%s)' % (name, replay), problems)
    breaks = check_broken_off(tap, name, image, ours, broken, block_bytes, is_spoiled)
    return counts + [breaks]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seed', type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument('--rounds', type=int, default=1, help='journals of each kind')
    parser.add_argument('--spoil', action='store_true',
                        help='change a byte of each result: every comparison must fail')
    options = parser.parse_args()
    for program in ('mke2fs', 'debugfs'):
        if shutil.which(program) is None:
            skip_all('no %s program' % program)
    print('# seed %d' % options.seed, flush=True)
    tap = Tap()
    totals = [0, 0, 0, 0]
    kinds = [(block_bytes, checksum, is_64bit) for block_bytes in FIRST_TARGET
             for checksum in OPEN_JOURNAL for is_64bit in (False, True)]
    with tempfile.TemporaryDirectory(prefix='uext4-debugfs-') as folder:
        for seed in range(options.seed, options.seed + options.rounds):
            for kind in kinds:
                counts = check_journal(tap, folder, seed, kind, options.spoil)
                totals = [total + count for total, count in zip(totals, counts)]
    tap.result(all(totals), 'in all %d transactions, %d blocks, %d revoked, broken off %d times'
               % tuple(totals))
    return tap.end()


if __name__ == '__main__':
    sys.exit(main())
