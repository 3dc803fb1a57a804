#!/usr/bin/env python3
"""Replays dirty journals that others made and compares every block.

`uext4 recover` on a copy must give the blocks that journal_expect.tsv lists, and change no others
but the superblock's and the journal's. A read-only mount must show what the recovered image shows
and leave every byte of the image as it was. Environment: UEXT4_BIN, UEXT4_LIST (the liblist program),
UEXT4_IMAGES.
"""
import os
import re
import sys
import tempfile

from image_tools import block_hash, block_size, changed_blocks, journal_blocks, run
from shared_images import Tap, Unpacked


def expectations(path):
    """By image: block size, and the hash of each block that a replay changes."""
    result = {}
    for line in path.read_text().splitlines():
        name, block_bytes, block, digest = line.split('\t')
        result.setdefault(name, (int(block_bytes), {}))[1][int(block)] = digest
    return result


def compare_blocks(source, image, block_bytes, expected, journal):
    """What differs from a right replay."""
    super_block = 1024 // block_bytes
    problems = ['block %d is not as expected' % block for block, digest in expected.items()
                if block_hash(image, block, block_bytes) != digest and block != super_block]
    return problems + ['block %d was changed' % block
                       for block in changed_blocks(source, image, block_bytes)
                       if block not in expected and block not in journal and block != super_block]


def is_external(image):
    """True if dumpe2fs tells of a journal device."""
    _, out, _ = run('dumpe2fs', '-h', image)
    return re.search(rb'^Journal (UUID|device):', out, re.M) is not None


def check_image(tap, source, expected):
    """Recovery and read-only view of one image."""
    program, lister = os.environ['UEXT4_BIN'], os.environ['UEXT4_LIST']
    block_bytes, blocks = expected
    journal = journal_blocks(source)
    with tempfile.TemporaryDirectory(prefix='uext4-journal-') as folder:
        image = os.path.join(folder, 'copy.img')
        run('cp', '--sparse=always', source, image)

        dirty_code, dirty_listing, error = run(lister, image)
        tap.result(not changed_blocks(source, image, block_bytes),
                   '%s: a read-only mount leaves the image as it is' % source.name)
        code, _, recover_error = run(program, 'recover', image)
        refusal = None
        if is_external(source):
            refusal = 'external'
        elif 'fast commits are pending' in error:
            refusal = 'fast commit'
        if refusal is not None:
            tap.result(code == 1 and refusal in recover_error and
                       not changed_blocks(source, image, block_bytes),
                       '%s: refused by name (%s)' % (source.name, refusal), [recover_error])
            return
        problems = compare_blocks(source, image, block_bytes, blocks, journal)
        if code != 0:
            problems.append('exit code %d: %s' % (code, recover_error))
        tap.result(not problems, '%s: recover, %d blocks as expected' % (source.name, len(blocks)),
                   problems)
        # Some of these journals overwrite an inode table on purpose: then both views fail alike.
        code, clean_listing, error = run(lister, image)
        tap.result(code == dirty_code and clean_listing == dirty_listing,
                   '%s: the read-only view equals the recovered image' % source.name, [error])


def main():
    tap = Tap()
    with Unpacked('e2fsprogs') as folder:
        expected = expectations(folder / 'journal_expect.tsv')
        for image in sorted((folder / 'journal').glob('*.img')):
            check_image(tap, image, expected.get(image.name, (block_size(image), {})))
    return tap.end()


if __name__ == '__main__':
    sys.exit(main())
