#!/usr/bin/env python3
"""Checks that includes go down the layers only (ARCHITECTURE.md), and prints the result as TAP.

A file may include headers of its own folder and of the folders below. Folders of one level ignore
each other. Front ends include the public header and their own files only.
"""
import pathlib
import re
import sys

LEVELS = [['base'], ['block', 'format'], ['journal'], ['space'], ['inode'], ['map'],
          ['dir', 'data'], ['fs']]
LEVEL_OF = {folder: level for level, folders in enumerate(LEVELS) for folder in folders}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')


def allowed(folder, included):
    """True if a file in the layer `folder` may include `included`, as the include line has it."""
    if included == 'uext4.h':
        return folder == 'fs'
    target = included.split('/')[0]
    if target == folder:
        return True
    return target in LEVEL_OF and LEVEL_OF[target] < LEVEL_OF[folder]


def violations(source):
    for path in sorted(source.glob('*/*.[ch]')):
        folder = path.parent.name
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if match and folder in LEVEL_OF and not allowed(folder, match.group(1)):
                yield '%s:%d: %s' % (path.relative_to(source), number, match.group(1))
    own = {path.name for path in source.glob('frontend/*/*.h')} | {'uext4.h'}
    for path in sorted(source.glob('frontend/*/*.[ch]')):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if match and pathlib.PurePath(match.group(1)).name not in own:
                yield '%s:%d: %s' % (path.relative_to(source), number, match.group(1))


def main():
    source = pathlib.Path(sys.argv[1]) / 'src'
    print('1..3')
    unknown = [p.name for p in source.iterdir()
               if p.is_dir() and p.name not in LEVEL_OF and p.name != 'frontend']
    print('%s 1 - every folder has its level' % ('not ok' if unknown else 'ok'))
    found = list(violations(source))
    print('%s 2 - includes go down the layers' % ('not ok' if found else 'ok'))
    for line in found + unknown:
        print('# ' + line)
    # The rule itself, so that a rule that allows everything does not pass.
    cases = [('map', 'inode/inode.h', True), ('map', 'dir/dir.h', False),
             ('dir', 'data/data.h', False), ('block', 'format/crc.h', False),
             ('format', 'block/device.h', False), ('data', 'uext4.h', False),
             ('fs', 'uext4.h', True), ('base', 'base/list.h', True)]
    wrong = [case for case in cases if allowed(case[0], case[1]) != case[2]]
    print('%s 3 - the rule refuses what it should' % ('not ok' if wrong else 'ok'))
    return 1 if found or unknown or wrong else 0


sys.exit(main())
