#!/usr/bin/env python3
"""find.py UEXT4 [NAMES [fuse2fs]]: `find` over a directory of many names: our mount and the kernel's.

Every run is over a fresh mount of the same image, the sides in turn; printed are medians, ranges and
the ratio to the kernel. Needs root. fuse2fs, if asked for, takes part once, as it takes minutes.
"""
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

RUNS = 7


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def make_image(image, folder, names):
    """An image with one directory of empty files, made by the kernel."""
    run('truncate', '-s', '256M', image)
    run('mke2fs', '-q', '-t', 'ext4', '-N', str(names + 1000), image)
    run('mount', '-o', 'loop', image, folder)
    try:
        os.mkdir(folder + '/many')
        for number in range(names):
            os.close(os.open('%s/many/name-%06d' % (folder, number), os.O_CREAT | os.O_WRONLY))
    finally:
        run('umount', folder)


@contextlib.contextmanager
def mounted(mount, umount):
    run(*mount)
    try:
        yield
    finally:
        run(*umount)


def main():
    uext4 = sys.argv[1]
    names = int(sys.argv[2]) if len(sys.argv) > 2 else 50000
    work = tempfile.mkdtemp(prefix='uext4-find-')
    image, folder = work + '/image', work + '/mnt'
    os.mkdir(folder)
    make_image(image, folder, names)
    sides = {'kernel': (['mount', '-o', 'loop,ro', image, folder], ['umount', folder]),
             'uext4': ([uext4, 'mount', image, folder], [uext4, 'umount', folder])}
    if sys.argv[3:] == ['fuse2fs']:
        sides['fuse2fs'] = (['fuse2fs', '-o', 'ro', image, folder], ['umount', folder])
    commands = {'find': ['find', folder],
                'find with attributes': ['find', folder, '-newermt', '2100-01-01']}
    try:
        for title, command in commands.items():
            times = {side: [] for side in sides}
            for turn in range(RUNS):
                for side, (mount, umount) in sides.items():
                    if side == 'fuse2fs' and turn > 0:
                        continue
                    with mounted(mount, umount):
                        start = time.monotonic()
                        run(*command)
                        times[side].append(time.monotonic() - start)
            kernel = statistics.median(times['kernel'])
            print('%s, %d names:' % (title, names))
            for side, values in times.items():
                print('  %-8s median %.3f s (%.3f to %.3f), %.1f times the kernel' %
                      (side, statistics.median(values), min(values), max(values),
                       statistics.median(values) / kernel))
    finally:
        shutil.rmtree(work)


main()
