#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The uext4 command against trees of the host: mke2fs -d makes an image of a tree, and what the
command prints and copies is compared with that tree.

UEXT4_BIN names the command. Prints TAP. Runs with and without root; what needs root is skipped
without it.
"""
import errno
import json
import os
import pty
import random
import re
import select
import shutil
import stat
import subprocess
import sys
import tempfile
import time

UEXT4 = os.environ.get('UEXT4_BIN', 'build/uext4')
SEED = int(os.environ.get('UEXT4_SEED', str(random.SystemRandom().randrange(1 << 32))))
IS_ROOT = os.geteuid() == 0
ENVIRONMENT = dict(os.environ, TZ='UTC', LC_ALL='C',
                   PATH=os.environ.get('PATH', '') + ':/usr/sbin:/sbin')
OUTPUT_LIMIT = 64 << 20

tests = []


class Skip(Exception):
    pass


def test(function):
    tests.append(function)
    return function


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def equal(got, wanted, what):
    check(got == wanted, f'{what}: got {got!r}, wanted {wanted!r}')


def tool(*command):
    try:
        subprocess.run(command, check=True, env=ENVIRONMENT, stdout=subprocess.DEVNULL,
                       stderr=subprocess.PIPE)
    except FileNotFoundError:
        raise Skip(f'{command[0]} is not installed') from None
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f'{command[0]}: {error.stderr.decode(errors="replace")}') from None


def debugfs(image, *requests):
    for request in requests:
        tool('debugfs', '-w', '-R', request, image)


def uext4(*arguments, code=0, **options):
    """Runs the command; returns stdout as bytes and stderr as text."""
    done = subprocess.run([UEXT4, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          env=ENVIRONMENT, timeout=120, check=False, **options)
    error = done.stderr.decode(errors='backslashreplace')
    equal(done.returncode, code, f'exit code of {arguments}, stderr {error!r}')
    return done.stdout, error


def on_terminal(*arguments):
    """Runs the command with stdout and stderr on a terminal; returns the code and all output."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(UEXT4, [UEXT4, *arguments], ENVIRONMENT)
    output = b''
    while select.select([terminal], [], [], 120)[0]:
        try:
            piece = os.read(terminal, 65536)
        except OSError as error:
            check(error.errno == errno.EIO, f'terminal: {error}')
            break
        if not piece:
            break
        output += piece
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), output.replace(b'\r\n', b'\n')


class Place:
    """The scratch folder, with a tree and its image that the tests share and only read."""

    def __init__(self, folder):
        self.folder = folder
        self.tree = os.path.join(folder, 'tree')
        self.image = os.path.join(folder, 'tree.img')
        self.random = random.Random(SEED)
        self.fill()
        self.make(self.image, self.tree, '64M')

    def path(self, *names):
        return os.path.join(self.folder, *names)

    @staticmethod
    def make(image, tree=None, size='16M', *options):
        from_tree = ['-d', tree] if tree else []
        tool('mke2fs', '-q', '-F', '-t', 'ext4', '-b', '4096', *from_tree, *options, image, size)

    def write(self, name, content, mode=0o644):
        path = os.path.join(self.tree, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'wb') as file:
            file.write(content)
        os.chmod(path, mode)
        return path

    def fill(self):
        self.write('etc/passwd', b'root:x:0:0::/:/bin/sh\n')
        self.write('etc/secret', b'top\n', 0o600)
        self.write('etc/.hidden', b'.\n')
        self.write('empty', b'')
        self.write('big', self.random.randbytes(3_000_017))
        self.write('tool', b'#!/bin/sh\n', 0o755)
        self.write('two words', b'2\n')
        self.write('d\u00e9j\u00e0', b'vu\n')
        self.write('evil\x1b[2Jname', b'boo\n')
        self.write('many/x', b'x')
        for number in range(3000):
            self.write(f'many/file-{number:05d}', b'%d\n' % number)
        sparse = self.write('sparse', b'')
        with open(sparse, 'r+b') as file:
            file.truncate(20 << 20)
            for block in (3, 700, 701, 4000):
                file.seek(block * 4096)
                file.write(self.random.randbytes(4096))
        os.link(os.path.join(self.tree, 'etc/passwd'), os.path.join(self.tree, 'etc/again'))
        os.symlink('passwd', os.path.join(self.tree, 'etc/short'))
        os.symlink('../' * 60 + 'etc/passwd', os.path.join(self.tree, 'etc/long'))
        os.symlink('/nowhere/\x1b[31mred', os.path.join(self.tree, 'etc/dangling'))
        os.mkdir(os.path.join(self.tree, 'sticky'))
        os.chmod(os.path.join(self.tree, 'sticky'), 0o1777)
        os.mkfifo(os.path.join(self.tree, 'fifo'), 0o640)
        deep = os.path.join(self.tree, *['deep'] * 40)
        os.makedirs(deep)
        with open(os.path.join(deep, 'bottom'), 'wb') as file:
            file.write(b'bottom\n')
        if IS_ROOT:
            os.mknod(os.path.join(self.tree, 'node'), 0o660 | stat.S_IFCHR, os.makedev(5, 300))
            os.chown(os.path.join(self.tree, 'etc/secret'), 1234, 70000)
        try:
            os.setxattr(os.path.join(self.tree, 'etc/secret'), 'user.note', b'a value')
            self.has_xattrs = True
        except OSError:
            self.has_xattrs = False
        for folder, folders, files in os.walk(self.tree, topdown=False):
            for name in files + folders:
                path = os.path.join(folder, name)
                os.utime(path, (self.random.randrange(1 << 30), self.random.randrange(1 << 30)),
                         follow_symlinks=False)


def describe(root):
    """A tree as a dictionary: path -> all that a copy has to keep."""
    found, names = {}, {}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != 'lost+found']
        for name in folders + files:
            path = os.path.join(folder, name)
            key = os.path.relpath(path, root)
            facts = os.lstat(path)
            kind = stat.S_IFMT(facts.st_mode)
            entry = {'mode': facts.st_mode, 'mtime': int(facts.st_mtime), 'owner': None}
            if IS_ROOT:
                entry['owner'] = (facts.st_uid, facts.st_gid)
            if kind == stat.S_IFREG:
                with open(path, 'rb') as file:
                    entry['content'] = file.read()
                names.setdefault(facts.st_ino, []).append(key)
            elif kind == stat.S_IFLNK:
                entry['target'] = os.readlink(path)
            elif kind == stat.S_IFCHR:
                entry['rdev'] = facts.st_rdev
            found[key] = entry
    found['hard links'] = sorted(sorted(keys) for keys in names.values() if len(keys) > 1)
    return found


def compare_trees(got, wanted):
    got, wanted = describe(got), describe(wanted)
    equal(sorted(got), sorted(wanted), 'names')
    for key, entry in wanted.items():
        check(got[key] == entry, f'{key} differs: mode, owner, time, content or target')


# ---- info ----------------------------------------------------------------------------------------

@test
def info_json_agrees_with_dumpe2fs(place):
    facts = json.loads(uext4('info', '--json', '--groups', place.image)[0])
    done = subprocess.run(['dumpe2fs', place.image], env=ENVIRONMENT, check=True,
                          capture_output=True)
    dump = dict(re.findall(r'^([A-Z][^:\n]*):[ \t]+(.*)$', done.stdout.decode(), re.M))
    equal(facts['uuid'], dump['Filesystem UUID'], 'uuid')
    equal(facts['geometry']['block_count'], int(dump['Block count']), 'blocks')
    equal(facts['geometry']['block_bytes'], int(dump['Block size']), 'block size')
    equal(facts['geometry']['inode_bytes'], int(dump['Inode size']), 'inode size')
    equal(facts['usage']['free_block_count'], int(dump['Free blocks']), 'free blocks')
    equal(facts['usage']['free_inode_count'], int(dump['Free inodes']), 'free inodes')
    names = [name for key in ('compat', 'incompat', 'ro_compat')
             for name in facts['features'][key]]
    equal(sorted(names), sorted(dump['Filesystem features'].split()), 'features')
    equal(facts['journal']['state'], 'clean', 'journal')
    equal(len(facts['groups']), facts['geometry']['group_count'], 'groups')
    check(facts['is_clean'] is True and facts['has_errors'] is False, 'state')


@test
def info_for_people(place):
    text = uext4('info', place.image)[0].decode()
    for words in ('File system', 'Features', 'Geometry', 'Usage', 'The journal is clean'):
        check(words in text, f'info lacks {words!r}: {text}')
    check(max(map(len, text.splitlines())) <= 80, 'a line is longer than 80 columns')


@test
def info_escapes_a_label(place):
    image = place.path('label.img')
    place.make(image, None, '4M', '-L', 'a\x1b[31m')
    code, text = on_terminal('info', image)
    equal(code, 0, 'exit code')
    check(b'\x1b[31m' not in text and b'a\\033[31m' in text, 'the label was not escaped')
    equal(json.loads(uext4('info', '--json', image)[0])['volume_name'], 'a\x1b[31m', 'label')


# ---- ls ------------------------------------------------------------------------------------------

@test
def ls_lists_the_names(place):
    got = uext4('ls', '-A', place.image, '/etc')[0].split(b'\n')[:-1]
    equal(got, sorted(os.listdir(os.fsencode(place.tree + '/etc'))), 'names')
    got = uext4('ls', place.image, '/etc')[0].split(b'\n')[:-1]
    check(b'.hidden' not in got, 'a hidden name was listed')
    got = uext4('ls', '-a', place.image, 'etc/')[0].split(b'\n')[:-1]
    equal(got[:2], [b'.', b'..'], 'dots')
    got = uext4('ls', '-U', place.image, '/many')[0].split(b'\n')[:-1]
    equal(sorted(got), sorted(os.listdir(os.fsencode(place.tree + '/many'))), 'unsorted names')


@test
def ls_long_lines(place):
    lines = uext4('ls', '-l', place.image, '/etc')[0].decode().splitlines()
    rows = {line.split()[7]: line.split(None, 7) for line in lines}
    for name in ('passwd', 'secret', 'again', 'short'):
        facts = os.lstat(os.path.join(place.tree, 'etc', name))
        row = rows[name]
        equal(row[0], stat.filemode(facts.st_mode), f'mode of {name}')
        equal(int(row[1]), facts.st_nlink, f'links of {name}')
        equal((int(row[2]), int(row[3])), (facts.st_uid, facts.st_gid), f'owner of {name}')
        equal(int(row[4]), facts.st_size, f'size of {name}')
        equal(row[5] + ' ' + row[6],
              time.strftime('%Y-%m-%d %H:%M', time.gmtime(facts.st_mtime)), f'time of {name}')
    check(rows['short'][7] == 'short -> passwd', 'target')


@test
def ls_recursive_lists_all(place):
    text = os.fsdecode(uext4('ls', '-RA', place.image)[0])
    got, folder = set(), None
    for block in text.split('\n\n'):
        head, *names = block.strip('\n').split('\n')
        folder = head.rstrip(':').lstrip('/')
        got.update(os.path.join(folder, name) for name in names if name)
    wanted = set()
    for folder, folders, files in os.walk(place.tree):
        wanted.update(os.path.relpath(os.path.join(folder, name), place.tree)
                      for name in folders + files)
    equal(sorted(got - {'lost+found'}), sorted(wanted), 'names')


@test
def ls_escapes_on_terminals_only(place):
    check(b'evil\x1b[2Jname' in uext4('ls', place.image)[0], 'raw name')
    check(b'evil\\033[2Jname' in uext4('ls', '-b', place.image)[0], 'escaped name with -b')
    for options in (['-l'], ['-1'], []):
        code, text = on_terminal('ls', *options, place.image)
        equal(code, 0, 'exit code')
        check(b'\x1b' not in text and b'evil\\033[2Jname' in text, f'terminal {options}')
        check('d\u00e9j\u00e0'.encode() in text, 'a harmless name was escaped')
    text = on_terminal('ls', '-l', place.image, '/etc')[1]
    check(b'\x1b' not in text and b'\\033[31mred' in text, 'target on a terminal')


@test
def ls_arguments(place):
    text = uext4('ls', '-d', place.image, '/etc', '/big')[0]
    equal(text, b'/big\n/etc\n', 'directories themselves')
    text = uext4('ls', place.image, '/big', '/etc/short', '/sticky')[0]
    equal(text, b'/big\n/etc/short\n\n/sticky:\n', 'files first')
    number = uext4('ls', '-di', place.image, '/etc')[0].split()[0].decode()
    equal(uext4('ls', place.image, f'<{number}>')[0], uext4('ls', place.image, '/etc')[0],
          'by number')


@test
def ls_ends_on_a_directory_loop(place):
    tree, image = place.path('loop'), place.path('loop.img')
    os.makedirs(os.path.join(tree, 'a', 'b'))
    place.make(image, tree, '4M')
    debugfs(image, 'ln a a/b/again', 'ln a a/b/more')
    error = uext4('ls', '-R', image, code=1)[1]
    check('/a/b/again' in error and 'second name' in error, error)
    error = uext4('get', image, '/', place.path('loop.out'), code=1)[1]
    check('second name' in error, error)
    equal(sorted(os.listdir(place.path('loop.out', 'a', 'b'))), [], 'copied loop')


# ---- stat, cat, map ------------------------------------------------------------------------------

@test
def stat_tells_all(place):
    paths = ['/etc/secret', '/etc/short', '/sparse', '/etc', '/fifo']
    for facts in json.loads(uext4('stat', '--json', place.image, *paths)[0]):
        there = os.lstat(place.tree + facts['path'])
        for key, wanted in (('mode', there.st_mode), ('uid', there.st_uid), ('gid', there.st_gid),
                            ('link_count', there.st_nlink), ('modify_time', int(there.st_mtime))):
            equal(facts[key], wanted, f'{key} of {facts["path"]}')
        if not stat.S_ISDIR(there.st_mode):
            equal(facts['size'], there.st_size, f'size of {facts["path"]}')
        if facts['path'] == '/sparse':
            equal(facts['extent_count'], 3, 'extents')
        if facts['path'] == '/etc/short':
            equal(facts['target'], 'passwd', 'target')
        if facts['path'] == '/etc/secret' and place.has_xattrs:
            equal(facts['xattrs'], [{'name': 'user.note', 'length': 7,
                                     'value_hex': b'a value'.hex()}], 'attributes')
    text = uext4('stat', place.image, '/etc/short')[0].decode()
    check('/etc/short -> passwd' in text and 'symbolic link' in text, text)
    text = uext4('stat', '-L', place.image, '/etc/long')[0].decode()
    check('regular file' in text, text)


@test
def cat_writes_the_content(place):
    for name in ('etc/passwd', 'big', 'sparse', 'empty'):
        with open(os.path.join(place.tree, name), 'rb') as file:
            check(uext4('cat', place.image, name)[0] == file.read(), f'{name} differs')
    both = uext4('cat', place.image, '/etc/long', '/etc/secret')[0]
    equal(both, b'root:x:0:0::/:/bin/sh\ntop\n', 'two files')


@test
def map_covers_the_file(place):
    facts, = json.loads(uext4('map', '--json', place.image, '/sparse')[0])
    at, data = 0, []
    for extent in facts['extents']:
        equal(extent['offset'], at, 'extents follow each other')
        at += extent['length']
        if extent['kind'] == 'data':
            data.append((extent['offset'] // 4096, extent['length'] // 4096))
            with open(place.image, 'rb') as image, \
                    open(os.path.join(place.tree, 'sparse'), 'rb') as file:
                image.seek(extent['device_offset'])
                file.seek(extent['offset'])
                check(image.read(extent['length']) == file.read(extent['length']),
                      'other data at the device offset')
    equal(at, 20 << 20, 'end')
    equal(data, [(3, 1), (700, 2), (4000, 1)], 'data')
    text = uext4('map', '-b', place.image, '/sparse')[0].decode()
    check(re.search(r'^ +700 +2 +\d+  data$', text, re.M), text)


# ---- get -----------------------------------------------------------------------------------------

@test
def get_copies_the_tree(place):
    for jobs in ('1', '4'):
        out = place.path('out' + jobs)
        uext4('get', '-j', jobs, place.image, '/', out)
        compare_trees(out, place.tree)
        there = os.stat(os.path.join(out, 'sparse'))
        check(there.st_blocks * 512 < 1 << 20, f'sparse takes {there.st_blocks} sectors')
        if place.has_xattrs:
            equal(os.getxattr(os.path.join(out, 'etc/secret'), 'user.note'), b'a value', 'xattr')
    uext4('get', place.image, '/', out)
    compare_trees(out, place.tree)


@test
def get_knows_where_to(place):
    out = place.path('where')
    os.mkdir(out)
    uext4('get', place.image, '/etc', out)
    uext4('get', place.image, '/etc', os.path.join(out, 'etc2'))
    uext4('get', place.image, '/etc/passwd', os.path.join(out, 'file'))
    uext4('get', place.image, '/big', '/tool', out + '/')
    uext4('get', place.image, '/etc/.', os.path.join(out, 'etc2'))
    equal(sorted(os.listdir(out)), ['big', 'etc', 'etc2', 'file', 'tool'], 'names')
    compare_trees(os.path.join(out, 'etc'), os.path.join(place.tree, 'etc'))
    compare_trees(os.path.join(out, 'etc2'), os.path.join(place.tree, 'etc'))
    for arguments in (['/etc', os.path.join(out, 'file')], ['/big', '/tool', out + '/none'],
                      ['/big', out + '/no/where'], ['/big', '/dev/null'], ['/big', out + '/new/']):
        uext4('get', place.image, *arguments, code=1)
    check(stat.S_ISCHR(os.stat('/dev/null').st_mode), '/dev/null was replaced')


@test
def get_stays_inside(place):
    """A tree in which a link and a directory share a name, as only a hostile image has it."""
    outside, out = place.path('outside'), place.path('inside')
    tree, image = place.path('hostile'), place.path('hostile.img')
    os.makedirs(os.path.join(tree, 'b'))
    os.mkdir(outside)
    os.mkdir(out)
    for name in ('b/planted', 'f'):
        with open(os.path.join(tree, name), 'wb') as file:
            file.write(b'planted\n')
    os.symlink(outside, os.path.join(tree, 'a'))
    os.symlink(os.path.join(outside, 'planted'), os.path.join(tree, 'g'))
    place.make(image, tree, '4M', '-O', '^metadata_csum,^dir_index')
    with open(image, 'r+b') as file:
        content = file.read()
        for old, new in ((b'b', b'a'), (b'g', b'f')):
            entry = re.search(rb'[^\0]\0\0\0..\x01[\x02\x07]' + old, content, re.S)
            check(entry, f'no entry of the name {old}')
            file.seek(entry.end() - 1)
            file.write(new)
    uext4('get', image, '/', out, code=1)
    equal(os.listdir(outside), [], 'written outside')

    os.mkdir(place.path('linked'))
    os.symlink(outside, place.path('linked', 'etc'))
    os.symlink(os.path.join(outside, 'planted'), place.path('linked', 'tool'))
    error = uext4('get', place.image, '/etc', '/tool', place.path('linked'), code=1)[1]
    check('is no directory' in error, error)
    equal(os.listdir(outside), [], 'written through a link of the target')
    check(not os.path.islink(place.path('linked', 'tool')), 'the link was not replaced')


@test
def get_refuses_names_with_slashes(place):
    tree, image, out = place.path('slash'), place.path('slash.img'), place.path('slash.out')
    os.makedirs(os.path.join(tree, 'sub'))
    with open(os.path.join(tree, 'sub', '..Xplanted'), 'wb') as file:
        file.write(b'planted\n')
    place.make(image, tree, '4M', '-O', '^metadata_csum,^dir_index')
    with open(image, 'r+b') as file:
        offset = file.read().index(b'..Xplanted')
        file.seek(offset)
        file.write(b'../planted')
    uext4('get', image, '/', out, code=1)
    check(not os.path.exists(os.path.join(out, 'planted')), 'written above its directory')


@test
def get_goes_on_after_an_error(place):
    out = place.path('partial')
    os.mkdir(out)
    error = uext4('get', place.image, '/nope', '/etc', out, code=1)[1]
    check('tree.img: /nope: No such file or directory' in error, error)
    compare_trees(os.path.join(out, 'etc'), os.path.join(place.tree, 'etc'))


@test
def get_without_owner_drops_set_user_id(place):
    tree, image, out = place.path('suid'), place.path('suid.img'), place.path('suid.out')
    os.mkdir(tree)
    with open(os.path.join(tree, 'su'), 'wb'):
        pass
    os.chmod(os.path.join(tree, 'su'), 0o4755)
    place.make(image, tree, '4M')
    uext4('get', '--no-owner', image, '/su', out)
    equal(stat.S_IMODE(os.stat(out).st_mode), 0o755, 'mode without owner')
    if IS_ROOT:
        uext4('get', image, '/su', out)
        equal(stat.S_IMODE(os.stat(out).st_mode), 0o4755, 'mode with owner')


@test
def get_as_another_user(place):
    if not IS_ROOT:
        raise Skip('needs root to become another user')
    folder = place.path('user')
    os.mkdir(folder)
    os.chmod(place.folder, 0o755)
    os.chown(folder, 65534, 65534)
    out = os.path.join(folder, 'out')
    error = uext4('get', place.image, '/', out, code=1, user=65534, group=65534,
                  extra_groups=[])[1]
    check('/node: skipped: only root may make devices' in error, error)
    uext4('get', '--no-devices', place.image, '/', out, user=65534, group=65534, extra_groups=[])
    there = os.stat(os.path.join(out, 'etc/secret'))
    equal((there.st_uid, stat.S_IMODE(there.st_mode)), (65534, 0o600), 'owner and mode')
    equal(os.stat(os.path.join(out, 'etc/passwd')).st_nlink, 2, 'links')


@test
def get_bounds_what_one_image_can_hold(place):
    """Two hundred names of one file that say that it has one name: each would become a copy."""
    tree, image, out = place.path('bomb'), place.path('bomb.img'), place.path('bomb.out')
    os.mkdir(tree)
    with open(os.path.join(tree, 'file'), 'wb') as file:
        file.write(place.random.randbytes(1 << 20))
    place.make(image, tree, '4M')
    requests = place.path('bomb.requests')
    with open(requests, 'w', encoding='ascii') as file:
        file.writelines(f'ln file name{number}\n' for number in range(200))
        file.write('set_inode_field file links_count 1\n')
    tool('debugfs', '-w', '-f', requests, image)
    error = uext4('get', image, '/', out, code=1)[1]
    check('blocks are used twice' in error, error)
    total = sum(os.stat(os.path.join(out, name)).st_blocks * 512 for name in os.listdir(out))
    check(total <= 5 << 20, f'{total} bytes were written')


@test
def get_shows_a_bar_on_terminals_only(place):
    tree, image, out = place.path('bar'), place.path('bar.img'), place.path('bar.out')
    os.mkdir(tree)
    for number in range(40):
        with open(os.path.join(tree, f'{number}'), 'wb') as file:
            file.write(b'x' * 4096)
    place.make(image, tree, '4M')
    slow = f'latency(read_us=50000):{image}'
    code, text = on_terminal('get', '-j', '1', slow, '/', out)
    equal(code, 0, f'exit code, {text!r}')
    check(b' files' in text, f'no progress: {text!r}')
    check(text.endswith(b'\r\x1b[K'), f'the status line was left: {text[-100:]!r}')
    code, text = on_terminal('get', '-q', '-j', '4', slow, '/', out)
    equal((code, text), (0, b''), 'quiet')
    equal(uext4('get', slow, '/', out), (b'', ''), 'no terminal')


# ---- recover -------------------------------------------------------------------------------------

@test
def recover_replays_the_journal(place):
    image = place.path('dirty.img')
    place.make(image, place.path('suid') if os.path.isdir(place.path('suid')) else None, '16M')
    equal(uext4('recover', image)[0], f'{image}: the journal was clean, nothing to do\n'.encode(),
          'clean')
    block = place.path('block')
    with open(block, 'wb') as file:
        file.write(b'\x5a' * 4096)
    number = int(subprocess.run(['debugfs', '-R', 'ffb 1 3000', image], env=ENVIRONMENT,
                                check=True, capture_output=True).stdout.split()[-1])
    requests = place.path('journal.requests')
    with open(requests, 'w', encoding='ascii') as file:
        file.write(f'jo\njw -b {number} {block}\njc\n')
    tool('debugfs', '-w', '-f', requests, image)
    with open(image, 'rb') as file:
        before = file.read()

    text = ' '.join(uext4('info', image)[0].decode().split())
    check('needs recovery' in text and "'uext4 recover'" in text, text)
    equal(json.loads(uext4('info', '--json', image)[0])['journal']['state'], 'replayed', 'state')
    facts = json.loads(uext4('info', '--json', '--noload', image)[0])
    equal(facts['journal']['state'], 'skipped', 'state with --noload')
    with open(image, 'rb') as file:
        check(file.read() == before, 'reading has changed the image')

    text = uext4('recover', image)[0].decode()
    check('replayed 1 transaction: 1 block written' in text, text)
    with open(image, 'rb') as file:
        file.seek(number * 4096)
        check(file.read(4096) == b'\x5a' * 4096, 'the block is not in its place')
    equal(json.loads(uext4('info', '--json', image)[0])['journal']['state'], 'clean', 'state')
    tool('e2fsck', '-fn', image)


# ---- images, options and errors ------------------------------------------------------------------

@test
def partitions_and_offsets(place):
    disk, part = place.path('disk.raw'), place.path('part.img')
    place.make(part, os.path.join(place.tree, 'etc'), '8M')
    with open(disk, 'wb') as file:
        file.truncate(32 << 20)
    script = 'label: gpt\nstart=2048, size=4096\nstart=8192, size=16384\n'
    try:
        subprocess.run(['sfdisk', '-q', disk], input=script.encode(), env=ENVIRONMENT, check=True)
    except FileNotFoundError:
        raise Skip('sfdisk is not installed') from None
    with open(disk, 'r+b') as file, open(part, 'rb') as content:
        file.seek(8192 * 512)
        file.write(content.read())
    wanted = uext4('ls', '-lA', part)[0]
    for options in (['--partition', '2'], ['--offset', '4M'], ['--offset=8192s'],
                    ['--offset', '0x400000']):
        equal(uext4('ls', '-lA', *options, disk)[0], wanted, f'listing with {options}')
    equal(uext4('ls', '-lA', f'{disk},partition=2')[0], wanted, 'listing by spec')
    uext4('ls', '--partition', '1', disk, code=1)
    uext4('ls', '--partition', '7', disk, code=1)
    uext4('ls', disk, code=1)


@test
def images_with_odd_names(place):
    for name in ('a,b.img', 'c:d.img', 'file:e,offset=1.img', '-x.img'):
        shutil.copy(place.image, place.path(name))
        wanted = uext4('ls', place.image)[0]
        equal(uext4('ls', place.path(name))[0], wanted, f'listing of {name}')
        equal(uext4('ls', '--', name, cwd=place.folder)[0], wanted, f'listing of {name}')
        os.unlink(place.path(name))


@test
def errors_say_what_and_where(place):
    for command in (['cat'], ['stat'], ['map'], ['ls']):
        error = uext4(*command, place.image, '/etc/nope', code=1)[1]
        equal(error, f'uext4: {place.image}: /etc/nope: No such file or directory\n', 'message')
    error = uext4('cat', place.image, '/etc', code=1)[1]
    equal(error, f'uext4: {place.image}: /etc: Is a directory\n', 'message')
    error = uext4('ls', place.image, '/nope\x1b[31m', code=1)[1]
    check('\\033[31m' in error and '\x1b' not in error, error)
    error = uext4('info', place.path('nope.img'), code=1)[1]
    check('nope.img: ' in error and 'No such file or directory' in error, error)
    equal(error.count('\n'), 1, 'lines')
    error = uext4('info', place.path('tree', 'etc', 'passwd'), code=1)[1]
    check('not an ext2, ext3 or ext4 file system' in error, error)


@test
def wrong_command_lines(place):
    image = place.image
    for arguments in ([], ['nope'], ['info'], ['info', '--nope', image], ['info', '-Z', image],
                      ['info', image, 'extra'], ['cat', image], ['stat', image], ['map', image],
                      ['get', image, '/'], ['get', '-j', '0', image, '/', 'x'],
                      ['info', '--offset', 'x', image], ['info', '--partition', '0', image],
                      ['info', '--offset', '1', '--partition', '1', image],
                      ['info', '-o', 'nope', image], ['ls', '-o'], ['recover', image, 'x'],
                      ['recover', '--noload', image], ['map', '--json', '-b', image, '/big']):
        output, error = uext4(*arguments, code=2)
        equal(output, b'', f'output of {arguments}')
        check(error, f'{arguments}: nothing said')


@test
def options_stand_anywhere(place):
    wanted = uext4('ls', '-l', '--noload', place.image, '/etc')[0]
    equal(uext4('ls', place.image, '--noload', '/etc', '-l')[0], wanted, 'listing')
    uext4('ls', '--', place.image, '-l', code=1)


@test
def helps_are_complete(place):
    overview = uext4('--help')[0].decode()
    names = re.findall(r'^  ([a-z]+) +[a-z]', overview.split('Commands:')[1].split('\n\n')[0],
                       re.M)
    check({'info', 'ls', 'stat', 'cat', 'get', 'map', 'put', 'mkdir', 'rm', 'mv', 'ln', 'chmod',
           'chown', 'touch', 'truncate', 'recover', 'mount', 'umount', 'version',
           'help'} == set(names), f'commands: {names}')
    for name in names:
        text = uext4(name, '--help')[0].decode()
        check(text.startswith(f'Usage: uext4 {name}'), text)
        check(max(map(len, text.splitlines())) <= 80, f'{name}: a line of more than 80 columns')
        equal(uext4('help', name)[0].decode(), text, f'help {name}')
    check(re.fullmatch(r'uext4 (\d+\.\d+\.\d+) \(library \1\)\n',
                       uext4('--version')[0].decode()), 'version')


@test
def full_output_is_an_error(place):
    if not os.path.exists('/dev/full'):
        raise Skip('no /dev/full')
    for arguments in (['ls', place.image], ['cat', place.image, '/big'], ['info', place.image],
                      ['--help'], ['info', '--help']):
        with open('/dev/full', 'wb') as full:
            done = subprocess.run([UEXT4, *arguments], stdout=full, stderr=subprocess.PIPE,
                                  check=False, env=ENVIRONMENT)
        equal(done.returncode, 1, f'exit code of {arguments}')
        check(done.stderr, f'{arguments}: nothing said')


def run(place, number, function):
    name = f'{number} - {function.__name__.replace("_", " ")}'
    try:
        function(place)
    except Skip as reason:
        print(f'ok {name} # SKIP {reason}')
        return True
    except (AssertionError, RuntimeError, OSError, ValueError, KeyError, AttributeError,
            IndexError, subprocess.SubprocessError) as error:
        print(f'not ok {name}')
        print('# ' + f'{type(error).__name__}: {error}'.replace('\n', '\n# '))
        return False
    print(f'ok {name}', flush=True)
    return True


def main():
    global UEXT4
    UEXT4 = os.path.abspath(UEXT4)
    os.umask(0o022)
    print(f'1..{len(tests)}\n# seed {SEED}')
    with tempfile.TemporaryDirectory(prefix='uext4-cli-') as folder:
        try:
            place = Place(folder)
        except Skip as reason:
            for number, function in enumerate(tests, 1):
                print(f'ok {number} - {function.__name__} # SKIP {reason}')
            return 0
        results = [run(place, number, function) for number, function in enumerate(tests, 1)]
    return 0 if all(results) else 1


if __name__ == '__main__':
    sys.exit(main())
