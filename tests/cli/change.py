#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The commands of uext4 that change an image in place, each on images of several shapes that mke2fs
makes. After every command `e2fsck -fn` must find nothing; what the image then holds is compared by
`uext4 get`, and where it matters by debugfs.

UEXT4_BIN names the command. Prints TAP. Runs with and without root; what needs root is left out
without it.
"""
import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

import command
from command import IS_ROOT, SEED, Skip, check, compare_trees, equal, tool, uext4

SHAPES = {
    'ext4-4k': ('-t', 'ext4', '-b', '4096'),
    'ext4-1k': ('-t', 'ext4', '-b', '1024'),
    'ext2-1k': ('-t', 'ext2', '-b', '1024'),
}
NAMES = 3000

tests = []


def test(function):
    tests.append(function)
    return function


def fsck(image, what):
    done = subprocess.run(['e2fsck', '-fn', image], env=command.ENVIRONMENT, check=False,
                          capture_output=True)
    equal(done.returncode, 0, f'e2fsck after {what}: {done.stdout.decode(errors="replace")}')


def change(image, name, *arguments, code=0):
    """Runs a changing command whose last arguments are `arguments`; returns its stderr."""
    *options, rest = arguments if isinstance(arguments[-1], list) else (*arguments, [])
    output, error = uext4(name, *options, image, *rest, code=code)
    equal(output, b'', 'output')
    fsck(image, (name, *arguments))
    return error


def facts(image, *paths):
    return json.loads(uext4('stat', '--json', image, *paths)[0])


def names(image, path):
    return os.fsdecode(uext4('ls', '-A', image, path)[0]).split('\n')[:-1]


class Place:
    """The scratch folder, with a tree of the host that the tests share and only read."""

    def __init__(self, folder):
        self.folder = folder
        self.tree = self.path('tree')
        self.random = random.Random(SEED)
        self.fill()

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def image(self, name, shape, size='64M'):
        image = self.path(f'{name}-{shape}.img')
        tool('mke2fs', '-q', '-F', *SHAPES[shape], image, size)
        return image

    def images(self, name):
        return [self.image(name, shape) for shape in SHAPES]

    def fresh(self, name, image, path):
        """The tree at `path` of the image, copied out."""
        out = self.path(name)
        shutil.rmtree(out, ignore_errors=True)
        uext4('get', image, path, out)
        return out

    def write(self, name, content, mode=0o644):
        path = os.path.join(self.tree, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'wb') as file:
            file.write(content)
        os.chmod(path, mode)
        return path

    def fill(self):
        self.write('etc/passwd', b'root:x:0:0::/:/bin/sh\n', 0o640)
        self.write('tool', b'#!/bin/sh\n', 0o4755 if IS_ROOT else 0o755)
        self.write('empty', b'')
        self.write('big', self.random.randbytes(3_000_017))
        self.write('two words', b'2\n')
        self.write('n' * 255, b'long\n')
        for number in range(NAMES):
            self.write(f'many/file-{number:05d}', b'%d\n' % number)
        with open(self.write('sparse', b''), 'r+b') as file:
            for block in (3, 700, 701, 4000):
                file.seek(block * 4096)
                file.write(self.random.randbytes(4096))
            file.truncate(20 << 20)
        for name in ('etc/again', 'etc/third', 'zz'):
            os.link(os.path.join(self.tree, 'etc/passwd'), os.path.join(self.tree, name))
        os.symlink('passwd', os.path.join(self.tree, 'etc/short'))
        os.symlink('../' * 60 + 'etc/passwd', os.path.join(self.tree, 'etc/long'))
        os.mkdir(os.path.join(self.tree, 'sticky'))
        os.chmod(os.path.join(self.tree, 'sticky'), 0o1777)
        os.mkfifo(os.path.join(self.tree, 'fifo'), 0o640)
        os.makedirs(os.path.join(self.tree, *['deep'] * 40))
        if IS_ROOT:
            os.mknod(os.path.join(self.tree, 'node'), 0o660 | stat.S_IFCHR, os.makedev(5, 300))
            os.chown(os.path.join(self.tree, 'empty'), 1234, 70000)
            os.lchown(os.path.join(self.tree, 'etc/short'), 7, 8)
        for folder, folders, files in os.walk(self.tree, topdown=False):
            for name in files + folders:
                os.utime(os.path.join(folder, name), ns=(self.random.randrange(1 << 60),) * 2,
                         follow_symlinks=False)


# ---- put -----------------------------------------------------------------------------------------

@test
def put_keeps_a_tree(place):
    for image in place.images('put'):
        change(image, 'put', [place.tree, '/copy'])
        out = place.fresh('put.out', image, '/copy')
        compare_trees(out, place.tree)
        for name in ('sparse', 'tool', 'etc/short'):
            there = os.lstat(os.path.join(out, name))
            here = os.lstat(os.path.join(place.tree, name))
            equal(there.st_mtime_ns, here.st_mtime_ns, f'time of {name}')
            equal(there.st_blocks, here.st_blocks, f'blocks of {name}')
        sparse, links = facts(image, '/copy/sparse', '/copy/zz')
        check(sparse['allocated_bytes'] <= 8 * 4096, f'holes were filled: {sparse}')
        equal(links['link_count'], 4, 'links')


@test
def put_finds_its_way(place):
    image = place.image('way', 'ext4-4k')
    tree = os.path.join(place.tree, 'etc')
    change(image, 'put', [tree, '/'])
    change(image, 'put', [tree, '/new'])
    change(image, 'put', [os.path.join(tree, '.'), '/etc'])
    two = [os.path.join(place.tree, name) for name in ('tool', 'empty')]
    change(image, 'put', [*two, 'new'])
    change(image, 'put', [os.path.join(place.tree, 'tool'), '/renamed'])
    equal(names(image, '/'), ['etc', 'lost+found', 'new', 'renamed'], 'root')
    equal(names(image, '/new'),
          ['again', 'empty', 'long', 'passwd', 'short', 'third', 'tool'], 'new')
    compare_trees(place.fresh('way.out', image, '/etc'), tree)
    for arguments, words in (((place.path('none'), '/'), 'No such file'),
                             ((tree, '/nowhere/x'), 'No such file'),
                             ((tree, '/renamed'), 'is no directory'),
                             ((tree, tree, '/nowhere'), 'several sources'),
                             ((image, '/'), 'the image itself')):
        error = change(image, 'put', list(arguments), code=1)
        check(words in error and image in error, error)
    os.mkdir(place.path('clash'))
    with open(place.path('clash', 'etc'), 'wb'):
        pass
    error = change(image, 'put', [place.path('clash', 'etc'), '/'], code=1)
    check('is a directory' in error, error)


@test
def put_replaces_files_and_merges_directories(place):
    for image in (place.image('again', 'ext4-1k'),):
        change(image, 'put', [place.tree, '/copy'])
        change(image, 'truncate', '-s', '9M', ['/copy/tool'])
        change(image, 'touch', ['/copy/etc/extra'])
        change(image, 'put', [os.path.join(place.tree, '.'), '/copy'])
        check('extra' in names(image, '/copy/etc'), 'a file that was there is gone')
        change(image, 'rm', ['/copy/etc/extra'])
        change(image, 'put', '-q', [place.tree, '/'])
        compare_trees(place.fresh('again.out', image, '/tree'), place.tree)
        equal(facts(image, '/copy/zz')[0]['link_count'], 4, 'links')


@test
def put_with_a_fixed_time_repeats(place):
    """Bytes differ still: generations and times of birth come from the clock."""
    for shape in SHAPES:
        image = place.image('time', shape)
        copies = [place.path(f'time-{number}.img') for number in (0, 1)]
        listings = []
        for copy in copies:
            shutil.copyfile(image, copy)
            change(copy, 'put', '--time', '1700000000', '--owner', '5:70000', [place.tree, '/'])
            listing = uext4('ls', '-lRaAi', copy)[0]
            layout = uext4('map', copy, '/tree/big', '/tree/sparse', '/tree/many')[0]
            listings.append((listing, layout))
            every = facts(copy, '/tree', '/tree/etc', '/tree/etc/short', '/tree/zz', '/tree/big',
                          '/tree/many/file-00000')
            for one in every:
                equal((one['uid'], one['gid']), (5, 70000), f'owner of {one["path"]}')
                for key in ('access_time', 'modify_time', 'change_time'):
                    equal(one[key], 1700000000, f'{key} of {one["path"]}')
            equal(facts(copy, '/')[0]['modify_time'], 1700000000, 'time of the root')
            time.sleep(0.01)
        check(listings[0] == listings[1], f'{shape}: the same input gave another image')


@test
def put_follows_no_links_of_the_host(place):
    image, tree = place.image('links', 'ext4-4k'), place.path('links')
    os.mkdir(tree)
    os.symlink(place.tree, os.path.join(tree, 'out'))
    change(image, 'put', [tree, '/'])
    change(image, 'put', [os.path.join(tree, 'out'), '/direct'])
    for one in facts(image, '/links/out', '/direct'):
        check(stat.S_ISLNK(one['mode']) and one['target'] == place.tree, str(one))
    change(image, 'ln', '-s', ['/lost+found', '/links2'])
    os.rename(tree, place.path('links2'))
    error = change(image, 'put', [place.path('links2'), '/'], code=1)
    check('is no directory' in error, error)
    equal(names(image, '/lost+found'), [], 'written through a link of the image')


@test
def put_names_attributes_that_stay_behind(place):
    tree = place.path('xattr')
    os.mkdir(tree)
    for name in ('a', 'b'):
        with open(os.path.join(tree, name), 'wb'):
            pass
        try:
            os.setxattr(os.path.join(tree, name), 'user.note', b'x')
        except OSError:
            raise Skip('the host has no user attributes here') from None
    image = place.image('xattr', 'ext4-4k')
    check('attributes' not in change(image, 'put', [tree, '/']), 'said without -v')
    error = change(image, 'put', '-v', [tree, '/'])
    equal(error.count('extended attributes'), 1, error)


@test
def put_into_a_full_image(place):
    for shape in SHAPES:
        image = place.image('full', shape, '6M')
        error = change(image, 'put', [os.path.join(place.tree, 'big'), place.tree, '/'], code=1)
        equal(error.count('No space left'), 1, error)
        check('not copied' in error, error)
        for line in uext4('ls', '-l', image, '/')[0].decode().splitlines():
            if line.endswith(' big'):
                equal(int(line.split()[4]), 3_000_017, 'size of a file that was copied')
        change(image, 'rm', '-r', ['/tree'])
        change(image, 'put', [os.path.join(place.tree, 'tool'), '/'])


@test
def a_killed_put_leaves_a_clean_image(place):
    for number in range(5):
        image = place.image('killed', 'ext4-4k')
        with subprocess.Popen([command.UEXT4, 'put', image, place.tree, '/'],
                              stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(place.random.random() * 0.12)
            process.send_signal(signal.SIGKILL)
        change(image, 'touch', [f'/after-{number}'])
        change(image, 'rm', '-rf', ['/tree'])
        equal(names(image, '/'), [f'after-{number}', 'lost+found'], 'root')


# ---- mkdir, rm -----------------------------------------------------------------------------------

@test
def mkdir_makes_directories(place):
    for image in place.images('mkdir'):
        change(image, 'mkdir', ['/a', 'b/'])
        change(image, 'mkdir', '-p', ['/a/c/d', '//e//f/', '/a'])
        change(image, 'mkdir', '-m', '2711', '--owner', '3:70000', ['/m'])
        change(image, 'mkdir', '-pm', 'go=', ['/m/x/y'])
        change(image, 'mkdir', '-m', '755', ['/m/plain'])
        got = {one['path']: (stat.S_IMODE(one['mode']), one['uid'], one['gid'], one['link_count'])
               for one in facts(image, '/a', '/a/c/d', '/e/f', '/m', '/m/x', '/m/x/y', '/m/plain')}
        equal(got, {'/a': (0o755, 0, 0, 3), '/a/c/d': (0o755, 0, 0, 2), '/e/f': (0o755, 0, 0, 2),
                    '/m': (0o2711, 3, 70000, 4), '/m/x': (0o2755, 0, 70000, 3),
                    '/m/x/y': (0o700, 0, 70000, 2), '/m/plain': (0o755, 0, 70000, 2)}, 'made')
        for path, words in (('/a', 'File exists'), ('/no/where', 'No such file'),
                            ('/', 'ends in a name'), ('/x' * 300, 'No such'),
                            ('n' * 256, 'name too long')):
            error = change(image, 'mkdir', [path, '/z'], code=1)
            check(words in error, error)
            change(image, 'rm', '-d', ['/z'])


@test
def rm_removes(place):
    for image in place.images('rm'):
        before = uext4('info', '--json', image)[0]
        change(image, 'put', [place.tree, '/'])
        change(image, 'rm', ['/tree/big', '/tree/zz', '/tree/etc/short', '/tree/fifo'])
        equal(facts(image, '/tree/etc/passwd')[0]['link_count'], 3, 'links')
        check('Is a directory' in change(image, 'rm', ['/tree/many'], code=1), 'rm of a directory')
        check('not empty' in change(image, 'rm', '-d', ['/tree/many'], code=1), 'rm -d')
        check('No such file' in change(image, 'rm', ['/none', '/tree/tool'], code=1), 'rm of none')
        check('tool' not in names(image, '/tree'), 'an error stopped the others')
        change(image, 'rm', '-f', ['/none', '/no/where'])
        for path in ('/', '/tree/..', '/.'):
            check('ends in a name' in change(image, 'rm', '-rf', [path], code=1), path)
        change(image, 'rm', '-d', ['/tree/sticky'])
        change(image, 'rm', '-r', ['/tree'])
        usage = [json.loads(text)['usage'] for text in (before, uext4('info', '--json', image)[0])]
        for key in ('free_block_count', 'free_inode_count'):
            equal(usage[1][key], usage[0][key], key)


@test
def rm_ends_on_a_directory_loop(place):
    image = place.image('loop', 'ext4-4k', '4M')
    change(image, 'mkdir', '-p', ['/a/b/c'])
    command.debugfs(image, 'ln a a/b/again')
    error = uext4('rm', '-r', image, '/a', code=1)[1]
    check('/a/b/again' in error and 'second name' in error, error)


# ---- mv, ln --------------------------------------------------------------------------------------

@test
def mv_renames(place):
    for image in place.images('mv'):
        change(image, 'put', [os.path.join(place.tree, 'etc'), os.path.join(place.tree, 'tool'),
                              os.path.join(place.tree, 'many'), '/'])
        change(image, 'mv', ['/tool', '/tool2'])
        change(image, 'mv', ['/tool2', '/etc'])
        change(image, 'mv', ['/etc/tool2', '/etc/passwd'])
        equal(uext4('cat', image, '/etc/passwd')[0], b'#!/bin/sh\n', 'content')
        equal(facts(image, '/etc/again')[0]['link_count'], 2, 'links of what was replaced')
        change(image, 'mkdir', ['/d'])
        change(image, 'mv', ['/etc', 'many/', '/d'])
        equal(names(image, '/'), ['d', 'lost+found'], 'what is left')
        equal(names(image, '/d'), ['etc', 'many'], 'what was moved')
        equal(len(names(image, '/d/many')), NAMES, 'names of a directory that was moved')
        check('itself' in change(image, 'mv', ['/d', '/d/etc/x'], code=1), 'into itself')
        check('exists' in change(image, 'mv', '-n', ['/d/etc/long', '/d/etc/again'], code=1), '-n')
        check('No such' in change(image, 'mv', ['/none', '/x'], code=1), 'no source')
        change(image, 'put', [os.path.join(place.tree, 'empty'), '/'])
        error = change(image, 'mv', ['/d/etc', '/d/many', '/empty'], code=1)
        check('Not a directory' in error, error)


@test
def ln_links(place):
    for image in place.images('ln'):
        change(image, 'put', [os.path.join(place.tree, name) for name in ('tool', 'empty')] + ['/'])
        change(image, 'mkdir', ['/d'])
        change(image, 'ln', ['/tool', '/tool2'])
        change(image, 'ln', ['/tool', '/empty', '/d'])
        change(image, 'ln', '-s', ['../x y', '/sym'])
        change(image, 'ln', '-s', '--owner', '4:5', ['t' * 900, '/d/long'])
        change(image, 'ln', ['/sym', '/sym2'])
        check('exists' in change(image, 'ln', ['/tool', '/sym'], code=1), 'in the way')
        check('exists' in change(image, 'ln', '-f', ['/tool', '/tool2'], code=1), 'the same file')
        change(image, 'ln', '-sf', ['new', '/sym'])
        check('second name' in change(image, 'ln', ['/d', '/e'], code=1), 'a directory')
        tool_facts, sym, sym2, long = facts(image, '/d/tool', '/sym', '/sym2', '/d/long')
        equal(tool_facts['link_count'], 3, 'links')
        equal([one['target'] for one in (sym, sym2, long)], ['new', '../x y', 't' * 900],
              'targets')
        equal((long['uid'], long['gid'], long['mode']), (4, 5, stat.S_IFLNK | 0o777), 'link')


# ---- chmod, chown, touch, truncate ---------------------------------------------------------------

@test
def chmod_agrees_with_the_host(place):
    image, host = place.image('chmod', 'ext4-4k'), place.path('chmod')
    os.mkdir(host)
    for name in ('file', 'dir/'):
        path = os.path.join(host, name.rstrip('/'))
        (os.mkdir if name.endswith('/') else lambda path: open(path, 'wb').close())(path)
    change(image, 'put', [host, '/'])
    os.umask(0)
    for mode in ('0', '644', '07755', 'u+x', 'g=u', 'a+X', 'go-rwx', '+s', 'o=t,u-w', 'ug+rw-x',
                 '=r', 'u=rwxs,g+s,o=', 'a-x', '=rw', '+X', 'o+t', 'g-s', 'u+w,g=u,o=g'):
        uext4('chmod', image, mode, '/chmod/file', '/chmod/dir')
        for name in ('file', 'dir'):
            tool('chmod', '--', mode.zfill(5) if mode.isdigit() else mode, os.path.join(host, name))
            equal(oct(stat.S_IMODE(facts(image, f'/chmod/{name}')[0]['mode'])),
                  oct(stat.S_IMODE(os.stat(os.path.join(host, name)).st_mode)), f'{mode} {name}')
    os.umask(0o022)
    fsck(image, 'chmod')
    for mode in ('', '8', '99999', 'u', 'u+q', 'z+x', 'u+x,', '0x1', '17777'):
        uext4('chmod', image, mode, '/chmod/file', code=2)
    check('No such' in change(image, 'chmod', ['0', '/none'], code=1), 'no file')


@test
def chown_changes_owners(place):
    for image in place.images('chown'):
        change(image, 'touch', ['/f'])
        change(image, 'chmod', ['4755', '/f'])
        change(image, 'ln', '-s', ['f', '/l'])
        change(image, 'chown', ['70000:80000', '/l'])
        change(image, 'chown', '-h', [':9', '/l'])
        change(image, 'chown', ['4294967294', '/f'])
        file, link = facts(image, '/f', '/l')
        equal((file['uid'], file['gid'], stat.S_IMODE(file['mode'])), (4294967294, 80000, 0o4755),
              'file')
        equal((link['uid'], link['gid']), (0, 9), 'link')
        change(image, 'chown', ['root:root', '/f'])
        equal(facts(image, '/f')[0]['uid'], 0, 'by name')
        for owner in ('', ':', '4294967296', 'nobody-of-that-name', '1:2:3', '-1'):
            uext4('chown', image, '--', owner, '/f', code=2)


@test
def touch_sets_times(place):
    for image in place.images('touch'):
        for text, wanted in (('@1', 1), ('@-5.5', -5.5), ('@1000000000.25', 1000000000.25),
                             ('2024-05-06', 1714953600), ('2024-05-06 07:08:09Z', 1714979289),
                             ('2024-05-06T07:08+0200', 1714972080),
                             ('2024-05-06 07:08:09.5 -01:30', 1714984689.5)):
            change(image, 'touch', '-d', text, ['/f'])
            output = uext4('stat', image, '/f')[0].decode()
            got = re.findall(r'(?:Access|Modify): (\S+ \S+)\.(\d+) \+0000', output)
            equal(len(got), 2, output)
            for when, fraction in got:
                seconds = time.mktime(time.strptime(when + ' UTC', '%Y-%m-%d %H:%M:%S %Z'))
                equal(seconds - time.timezone + int(fraction) / 1e9, wanted, text)
        change(image, 'touch', '-m', '-d', '@7', ['/f'])
        equal([facts(image, '/f')[0][key] for key in ('access_time', 'modify_time')],
              [1714984689, 7], '-m')
        change(image, 'touch', '-a', ['/f'])
        check(facts(image, '/f')[0]['access_time'] > 1700000000, 'now')
        change(image, 'touch', '-c', ['/none'])
        check('none' not in names(image, '/'), '-c made a file')
        for text in ('', 'x', '@', '@1x', '2024-13-01', '2024-05-06 07', '2024-05-06 07:08:09+2'):
            uext4('touch', '-d', text, image, '/f', code=2)


@test
def truncate_sets_sizes(place):
    with open(os.path.join(place.tree, 'big'), 'rb') as file:
        content = file.read()
    for image in place.images('truncate'):
        change(image, 'put', [os.path.join(place.tree, 'big'), '/'])
        change(image, 'truncate', '-s', '1000001', ['/big'])
        equal(uext4('cat', image, '/big')[0], content[:1000001], 'shorter')
        change(image, 'truncate', '-s', '2M', ['/big', '/new'])
        check(uext4('cat', image, '/big')[0] == content[:1000001].ljust(2 << 20, b'\0'), 'longer')
        equal(facts(image, '/new')[0]['size'], 2 << 20, 'new')
        change(image, 'truncate', '-s', '0', ['/big'])
        change(image, 'truncate', '-cs', '0', ['/none'])
        error = change(image, 'truncate', '-s', '0', ['/lost+found'], code=1)
        check('Is a directory' in error, error)
        error = change(image, 'truncate', '-s', '8000000T', ['/new'], code=1)
        check('too large' in error, error)
        uext4('truncate', image, '/new', code=2)
        uext4('truncate', '-s', 'x', image, '/new', code=2)


# ---- What all have in common ---------------------------------------------------------------------

@test
def command_lines_are_checked(place):
    image = place.image('usage', 'ext4-4k', '4M')
    with open(image, 'rb') as file:
        before = file.read()
    for arguments in (['mkdir', image], ['rm', image], ['mv', image, '/a'], ['ln', image, '/a'],
                      ['chmod', image, '0'], ['chown', image, '0'], ['touch', image],
                      ['put', image], ['put', image, 'x'], ['put', '--time', 'x', image, 'x', '/'],
                      ['put', '--owner', '-', image, 'x', '/'], ['mkdir', '-m', 'q', image, '/a'],
                      ['mkdir', '-o', 'ro', image, '/a'], ['touch', '--noload', image, '/a'],
                      ['rm', '--wrong', image, '/a']):
        error = uext4(*arguments, code=2)[1]
        check("--help'" in error, error)
    uext4('ls', '-o', 'rw', image)
    with open(image, 'rb') as file:
        check(file.read() == before, 'the image has changed')
    check('not an ext2' in uext4('mkdir', '/dev/null', '/a', code=1)[1], 'no image')


@test
def images_that_cannot_be_written_are_refused(place):
    image = place.path('refused.img')
    tool('mke2fs', '-q', '-F', '-t', 'ext4', '-O', 'inline_data', image, '4M')
    with open(image, 'rb') as file:
        before = file.read()
    code = subprocess.run([command.UEXT4, 'touch', image, '/f'], env=command.ENVIRONMENT,
                          check=False, capture_output=True)
    if code.returncode == 0:
        fsck(image, 'touch')
        return
    check(b'inline_data' in code.stderr, code.stderr)
    with open(image, 'rb') as file:
        check(file.read() == before, 'the image has changed')


def run(place, number, function):
    name = f'{number} - {function.__name__.replace("_", " ")}'
    try:
        function(place)
    except Skip as reason:
        print(f'ok {name} # SKIP {reason}')
        return True
    except (AssertionError, RuntimeError, OSError, ValueError, KeyError, IndexError,
            subprocess.SubprocessError) as error:
        print(f'not ok {name}')
        print('# ' + f'{type(error).__name__}: {error}'.replace('\n', '\n# '))
        return False
    print(f'ok {name}', flush=True)
    return True


def scratch_folder():
    """Memory where there is enough: every command syncs its image, and no test is about disks."""
    try:
        facts_of_memory = os.statvfs('/dev/shm')
    except OSError:
        return None
    room = facts_of_memory.f_bavail * facts_of_memory.f_bsize
    return '/dev/shm' if room >= 1 << 30 and os.access('/dev/shm', os.W_OK) else None


def main():
    command.UEXT4 = os.path.abspath(command.UEXT4)
    os.umask(0o022)
    os.environ['TZ'] = 'UTC'
    time.tzset()
    print(f'1..{len(tests)}\n# seed {SEED}')
    with tempfile.TemporaryDirectory(prefix='uext4-change-', dir=scratch_folder()) as folder:
        place = Place(folder)
        results = [run(place, number, function) for number, function in enumerate(tests, 1)]
    return 0 if all(results) else 1


if __name__ == '__main__':
    sys.exit(main())
