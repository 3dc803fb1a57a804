#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The FUSE mount against the kernel's mount of the same image.

Runs in a mount namespace of its own, in which /sbin holds the helpers of mount(8) and umount(8) as
an installation would leave them: so nothing outlives a failure, and nothing on the system changes.
"""
import ctypes, errno, fcntl, mmap, os, random, shutil, signal, stat, struct, subprocess
import sys, tempfile, threading, time

UEXT4 = os.path.abspath(os.environ.get('UEXT4_BIN', 'build/uext4'))
LIMIT = 60  # seconds for anything that must not hang
NOBODY = 65534


def run(*command, check=True, **options):
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, **options)
    if check and result.returncode != 0:
        raise AssertionError(f'{command}: status {result.returncode}: {result.stderr.strip()}')
    return result


def try_lock(path):
    """Takes the lock that a writer would take; fails while anybody has the image open."""
    # struct flock: l_type, l_whence, l_start, l_len, l_pid
    lock = struct.pack('hhqqi4x', fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    with open(path, 'r+b') as image:
        try:
            fcntl.fcntl(image, fcntl.F_OFD_SETLK, lock)
            return True
        except BlockingIOError:
            return False


class Skip(Exception):
    pass


class Place:
    """A directory with an image of a random tree, mounted by the kernel at `kernel`."""

    def __init__(self, folder, seed):
        self.folder, self.random = folder, random.Random(seed)
        self.image, self.mountpoint = f'{folder}/disk,1.img', f'{folder}/mnt'
        self.kernel = f'{folder}/kernel'
        os.chmod(folder, 0o755)
        for name in (self.mountpoint, self.kernel):
            os.mkdir(name)
        run('truncate', '-s', '128M', self.image)
        run('mke2fs', '-q', '-t', 'ext4', '-I', '256', self.image)
        run('mount', '-o', 'loop', self.image, self.kernel)
        self.fill(self.kernel)
        run('umount', self.kernel)
        run('mount', '-o', 'loop,ro,noload', self.image, self.kernel)

    def fill(self, root):
        os.mkdir(f'{root}/many')
        for i in range(3000):
            with open(f'{root}/many/{i:05d}-{"x" * self.random.randrange(40)}', 'w') as file:
                file.write(str(i))
        for i in range(8):
            with open(f'{root}/data{i}', 'wb') as file:
                file.write(self.random.randbytes(3 << 20) + b'tail')
        with open(f'{root}/sparse', 'wb') as file:
            for offset in (1 << 20, 5 << 20):
                file.seek(offset)
                file.write(b'data' * 1024)
            file.truncate(8 << 20)
        os.link(f'{root}/data0', f'{root}/many/hard')
        os.symlink('data0', f'{root}/short')
        os.symlink('many/' + '../many/' * 30 + 'hard', f'{root}/long')
        os.mknod(f'{root}/null', stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.mkfifo(f'{root}/fifo')
        os.setxattr(f'{root}/data1', 'user.color', b'blue')
        os.setxattr(f'{root}/data1', 'user.large', b'v' * 500)
        os.setxattr(f'{root}/data1', 'trusted.secret', b'hidden')
        # An ACL, version 2: owner rw-, user nobody r--, group ---, mask r--, others ---.
        acl = [(1, 6, -1), (2, 4, NOBODY), (4, 0, -1), (16, 4, -1), (32, 0, -1)]
        value = (2).to_bytes(4, 'little') + b''.join(
            tag.to_bytes(2, 'little') + mode.to_bytes(2, 'little') +
            (who & 0xffffffff).to_bytes(4, 'little') for tag, mode, who in acl)
        for name, mode in (('acl', 0o600), ('private', 0o600), ('public', 0o644)):
            with open(f'{root}/{name}', 'w') as file:
                file.write(name)
            os.chmod(f'{root}/{name}', mode)
        os.setxattr(f'{root}/acl', 'system.posix_acl_access', value)
        run('chattr', '+i', f'{root}/public')

    def mount(self, *arguments, image=None):
        run(UEXT4, 'mount', *arguments, image or self.image, self.mountpoint)

    def umount(self):
        run(UEXT4, 'umount', self.mountpoint)

    def mounted(self):
        with open('/proc/self/mountinfo', encoding='utf-8') as table:
            found = [line.split(' - ')[1].split()[0] for line in table
                     if line.split()[4] == self.mountpoint]
        return found[-1] if found else None

    def clean(self):
        while self.mounted():
            run('umount', '-i', '-l', self.mountpoint, check=False)


def list_tree(root):
    found = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(folder, name)
            s = os.lstat(path)
            found[os.path.relpath(path, root)] = (
                s.st_ino, s.st_mode, s.st_nlink, s.st_uid, s.st_gid, s.st_size, s.st_blocks,
                s.st_rdev, s.st_mtime_ns, s.st_ctime_ns,
                os.readlink(path) if stat.S_ISLNK(s.st_mode) else None,
                sorted((n, os.getxattr(path, n, follow_symlinks=False))
                       for n in os.listxattr(path, follow_symlinks=False)))
    return found


def read_file(path):
    with open(path, 'rb') as file:
        return file.read()


def hole_map(path):
    fd, at, found = os.open(path, os.O_RDONLY), 0, []
    size = os.fstat(fd).st_size
    while at < size:
        try:
            data = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            assert error.errno == errno.ENXIO, error
            break
        at = os.lseek(fd, data, os.SEEK_HOLE)
        found.append((data, at))
    os.close(fd)
    return found


def as_nobody(*command):
    return run('setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups', *command,
               check=False)


# ---- Tests: each gets the place with nothing mounted at the mountpoint ---------------------------


def test_tree_equals_kernel(place):
    place.mount()
    assert place.mounted() == 'fuse.uext4', place.mounted()
    expected = list_tree(place.kernel)
    assert len(expected) > 3000
    for _ in range(2):  # from the image, then from the kernel's caches
        got = list_tree(place.mountpoint)
        different = [n for n in expected.keys() | got.keys() if expected.get(n) != got.get(n)]
        assert not different, [(n, expected.get(n), got.get(n)) for n in different[:3]]
    for name in ('data0', 'data5', 'sparse', 'long', 'many/hard'):
        assert read_file(f'{place.kernel}/{name}') == read_file(f'{place.mountpoint}/{name}'), name
    assert hole_map(f'{place.kernel}/sparse') == hole_map(f'{place.mountpoint}/sparse')
    assert run(f'lsattr {place.kernel}/public', shell=True).stdout.split()[0] == \
        run(f'lsattr {place.mountpoint}/public', shell=True).stdout.split()[0]
    with open(f'{place.mountpoint}/null', 'rb') as null:
        assert null.read(1) == b''


def test_statfs_equals_kernel(place):
    place.mount()
    fields = ('f_bsize', 'f_frsize', 'f_blocks', 'f_bfree', 'f_bavail', 'f_files', 'f_ffree',
              'f_namemax')
    expected, got = os.statvfs(place.kernel), os.statvfs(place.mountpoint)
    for field in fields:
        assert getattr(expected, field) == getattr(got, field), \
            (field, getattr(expected, field), getattr(got, field))


def test_writes_are_refused(place):
    place.mount()
    for action in (lambda: open(f'{place.mountpoint}/new', 'w'),
                   lambda: os.unlink(f'{place.mountpoint}/data0'),
                   lambda: os.chmod(f'{place.mountpoint}/data0', 0o777)):
        try:
            action()
            raise AssertionError('a write went through')
        except OSError as error:
            assert error.errno == errno.EROFS, error


def test_direct_reads(place):
    place.mount()
    expected = read_file(f'{place.kernel}/data2')
    fd = os.open(f'{place.mountpoint}/data2', os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, 2 << 20)
    for _ in range(40):
        offset = place.random.randrange(0, len(expected) // 4096) * 4096
        length = place.random.randrange(1, 512) * 4096
        count = os.preadv(fd, [memoryview(buffer)[:length]], offset)
        assert buffer[:count] == expected[offset:offset + length], (offset, length, count)
    assert os.preadv(fd, [buffer], len(expected)) == 0
    os.close(fd)


def test_parallel_reads(place):
    place.mount()
    expected = [read_file(f'{place.kernel}/data{i}') for i in range(8)]
    seeds = [place.random.random() for _ in range(8)]
    failures = []

    def read(i):
        own = random.Random(seeds[i])
        try:
            with open(f'{place.mountpoint}/data{i}', 'rb', buffering=0) as file:
                for _ in range(200):
                    offset = own.randrange(len(expected[i]))
                    length = own.randrange(1, 300000)
                    got = os.pread(file.fileno(), length, offset)
                    assert got == expected[i][offset:offset + length]
                    os.listdir(f'{place.mountpoint}/many')
        except Exception as error:  # pylint: disable=broad-except
            failures.append(error)

    threads = [threading.Thread(target=read, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert not failures, failures[0]


def test_lock_is_gone_after_umount(place):
    assert try_lock(place.copy)
    for _ in range(10):
        for command in ((UEXT4, 'umount'), ('umount',)):
            place.mount(image=place.copy)
            read_file(f'{place.mountpoint}/data3')
            assert not try_lock(place.copy)
            run(*command, place.mountpoint)
            assert try_lock(place.copy), command
            assert place.mounted() is None


def test_foreground_and_signals(place):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with subprocess.Popen([UEXT4, 'mount', '-f', place.copy, place.mountpoint]) as server:
            deadline = time.monotonic() + LIMIT
            while place.mounted() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            # An answer shows that the server has come as far as its loop.
            assert len(os.listdir(f'{place.mountpoint}/many')) == 3001
            server.send_signal(number)
            assert server.wait(LIMIT) == 0, number
            assert place.mounted() is None
            assert try_lock(place.copy)


def test_killed_server(place):
    for command in ((UEXT4, 'umount'), ('umount',)):
        with subprocess.Popen([UEXT4, 'mount', '-f', place.copy, place.mountpoint]) as server:
            deadline = time.monotonic() + LIMIT
            while place.mounted() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            os.listdir(place.mountpoint)
            server.kill()
            server.wait(LIMIT)
        run(*command, place.mountpoint)
        assert place.mounted() is None
        assert try_lock(place.copy)
        with open('/run/mount/utab', encoding='utf-8') as table:
            assert place.mountpoint not in table.read()


def test_busy_and_lazy(place):
    place.mount(image=place.copy)
    with open(f'{place.mountpoint}/data4', 'rb', buffering=0) as file:
        busy = run(UEXT4, 'umount', place.mountpoint, check=False)
        assert busy.returncode == 1 and 'in use' in busy.stderr, busy
        run(UEXT4, 'umount', '-l', place.mountpoint)
        assert place.mounted() is None
        file.seek(1 << 20)
        assert len(file.read(4096)) == 4096
    deadline = time.monotonic() + LIMIT
    while not try_lock(place.copy) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert try_lock(place.copy)


def test_helpers_of_mount(place):
    for kind in ('uext4', 'fuse.uext4'):
        run('mount', '-t', kind, '-o', 'noexec,noatime,x-comment', place.copy, place.mountpoint)
        assert place.mounted() == 'fuse.uext4'
        assert os.statvfs(place.mountpoint).f_flag & os.ST_NOEXEC
        run('umount', place.mountpoint)
        assert try_lock(place.copy)
    refused = run('mount', '-t', 'uext4', '-o', 'no-such-option', place.copy, place.mountpoint,
                  check=False)
    assert refused.returncode == 32 and 'no-such-option' in refused.stderr, refused
    missing = run('mount', '-t', 'uext4', f'{place.folder}/absent', place.mountpoint, check=False)
    assert missing.returncode == 32 and 'absent' in missing.stderr, missing


def test_second_mount(place):
    place.mount()
    second = f'{place.folder}/second'
    os.makedirs(second, exist_ok=True)
    run(UEXT4, 'mount', place.image, second)
    place.umount()
    assert os.path.exists(f'{second}/data0')
    run(UEXT4, 'umount', second)


def test_bad_mountpoints(place):
    for mountpoint, word in ((f'{place.folder}/absent', 'does not exist'),
                             (place.image, 'not a directory')):
        failed = run(UEXT4, 'mount', place.image, mountpoint, check=False)
        assert failed.returncode == 1 and word in failed.stderr, failed
    failed = run(UEXT4, 'umount', place.folder, check=False)
    assert failed.returncode == 1 and 'nothing is mounted' in failed.stderr, failed


def test_device_errors(place):
    os.makedirs(f'{place.folder}/plain', exist_ok=True)
    path = f'{place.folder}/plain/disk.img'
    if not os.path.exists(path):
        shutil.copyfile(place.copy, path)
    seen = 0
    for at in (25, 60):
        spec = f'fault(op=read,at={at},count=0):file:{path}'
        mounted = run(UEXT4, 'mount', spec, place.mountpoint, check=False)
        if mounted.returncode != 0:
            continue
        for folder, _, files in os.walk(place.mountpoint):
            for name in files:
                try:
                    if name.startswith('data'):
                        read_file(os.path.join(folder, name))
                except OSError as error:
                    assert error.errno == errno.EIO, error
                    seen += 1
        place.umount()
        assert try_lock(path)
    assert seen > 0, 'no fault reached a read'


def attach_loop(path):
    made = run('losetup', '-f', '--show', path, check=False)
    if made.returncode != 0:
        raise Skip('no loop devices')
    return made.stdout.strip()


def test_block_device(place):
    device = attach_loop(place.copy)
    try:
        place.mount(image=device)
        assert place.mounted() == 'fuseblk.uext4', place.mounted()
        assert read_file(f'{place.mountpoint}/data6') == read_file(f'{place.kernel}/data6')
        assert not try_lock(device)
        assert run('mount', device, place.kernel, check=False).returncode != 0
        run('umount', '-i', place.mountpoint)  # without a helper: the kernel waits
        assert try_lock(device)
        run('mount', '-o', 'ro', device, place.mountpoint)
        refused = run(UEXT4, 'mount', device, place.mountpoint, check=False)
        assert refused.returncode == 1 and 'in use' in refused.stderr, refused
        run('umount', place.mountpoint)
    finally:
        place.clean()
        run('losetup', '-d', device)


def test_partition(place):
    disk = f'{place.folder}/partitioned.img'
    run('truncate', '-s', '130M', disk)
    run('sfdisk', '-q', disk, input='label: dos\nstart=2048,type=83\n')
    run('dd', f'if={place.copy}', f'of={disk}', 'bs=1M', 'seek=1', 'conv=notrunc,sparse')
    device = attach_loop(disk)
    try:
        for image in (disk, device):
            for arguments in (('--offset', '1M'), ('--partition', '1'), ('-o', 'partition=1'),
                              ('-o', 'offset=2048s')):
                place.mount(*arguments, image=image)
                assert read_file(f'{place.mountpoint}/public') == b'public'
                place.umount()
    finally:
        place.clean()
        run('losetup', '-d', device)


def test_permissions_of_another_user(place):
    place.mount()
    for name in ('acl', 'private', 'public'):
        got = [as_nobody('cat', f'{root}/{name}') for root in (place.kernel, place.mountpoint)]
        assert got[0].returncode == got[1].returncode, (name, got)
        assert got[0].stdout == got[1].stdout, (name, got)
    script = f'import os; print(os.listxattr("{place.mountpoint}/data1"))'
    listed = as_nobody(sys.executable, '-c', script)
    assert 'user.color' in listed.stdout and 'trusted' not in listed.stdout, listed


def test_unprivileged(place):
    if shutil.which('fusermount3') is None:
        raise Skip('no fusermount3')
    home = f'{place.folder}/home'
    os.makedirs(f'{home}/mnt', exist_ok=True)
    shutil.copyfile(place.copy, f'{home}/disk.img')
    shutil.copy(UEXT4, f'{home}/uext4')
    for name in (home, f'{home}/mnt', f'{home}/disk.img'):
        os.chown(name, NOBODY, NOBODY)
    os.chmod(f'{home}/disk.img', 0o444)
    for umount in (f'{home}/uext4 umount', 'umount', 'fusermount3 -u'):
        done = as_nobody('sh', '-ec', f'''
            {home}/uext4 mount {home}/disk.img {home}/mnt
            test "$(ls {home}/mnt/many | wc -l)" = 3001
            cat {home}/mnt/public
            ! cat {home}/mnt/private 2>/dev/null
            {umount} {home}/mnt''')
        assert done.returncode == 0 and done.stdout == 'public', (umount, done)
        assert umount.startswith('fuser') or try_lock(f'{home}/disk.img'), umount


# ---- The run -------------------------------------------------------------------------------------


def hear_signals():
    """Under nohup or in the background of a script signals are ignored, and servers inherit that."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def private_namespace():
    """Moves this process into a mount namespace with the helpers in /sbin; returns why not."""
    if os.geteuid() != 0:
        return 'needs root'
    if not os.path.exists('/dev/fuse'):
        return 'needs /dev/fuse'
    if ctypes.CDLL(None, use_errno=True).unshare(0x20000) != 0:
        return 'cannot have a mount namespace'
    if run('mount', '--make-rprivate', '/', check=False).returncode != 0:
        return 'cannot mount'
    # Copies of other FUSE mounts would keep their servers alive after they are unmounted outside.
    with open('/proc/self/mounts', encoding='utf-8', errors='surrogateescape') as mounts:
        for source in mounts:
            point, kind = source.split()[1:3]
            if kind.startswith('fuse'):
                run('umount', '-l', point.encode().decode('unicode_escape'), check=False)
    return None


def install_helpers(folder):
    """Puts a copy of /sbin with the helpers in its place."""
    sbin, original = f'{folder}/sbin', os.path.realpath('/sbin')
    shutil.copytree(original, sbin, symlinks=True)
    for name in ('mount.uext4', 'mount.fuse.uext4', 'umount.uext4', 'umount.fuse.uext4'):
        if os.path.lexists(f'{sbin}/{name}'):
            os.unlink(f'{sbin}/{name}')
        os.symlink(UEXT4, f'{sbin}/{name}')
    run('mount', '--bind', sbin, original)
    # Users may open the FUSE device on every common system, but not in every container.
    run('mknod', '-m', '666', f'{folder}/fuse', 'c', '10', '229')
    run('mount', '--bind', f'{folder}/fuse', '/dev/fuse')


def run_tests(folder):
    hear_signals()
    reason = private_namespace()
    if reason is not None:
        print(f'1..0 # SKIP {reason}')
        return 0
    seed = int(os.environ.get('UEXT4_SEED', random.randrange(1 << 32)))
    tests = [value for name, value in globals().items() if name.startswith('test_')]
    print(f'1..{len(tests)}\n# seed {seed} (UEXT4_SEED={seed} repeats it)', flush=True)
    failures = 0
    install_helpers(folder)
    place = Place(folder, seed)
    # The kernel's loop device keeps the image open; locks are tried on a copy.
    place.copy = f'{folder}/copy.img'
    run('cp', '--sparse=always', place.image, place.copy)
    for number, test in enumerate(tests, 1):
        name = test.__name__[len('test_'):].replace('_', ' ')
        try:
            test(place)
            print(f'ok {number} - {name}', flush=True)
        except Skip as why:
            print(f'ok {number} - {name} # SKIP {why}', flush=True)
        except Exception as error:  # pylint: disable=broad-except
            failures += 1
            print(f'not ok {number} - {name}\n# {error!r}', flush=True)
        finally:
            place.clean()
    return 1 if failures else 0


def main():
    # The mounts live and end with the child's namespace; here, where the folder is deleted, there
    # are none.
    folder = tempfile.mkdtemp(prefix='uext4-fuse-', dir='/var/tmp')
    try:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = run_tests(folder)
            except Exception as error:  # pylint: disable=broad-except
                print(f'Bail out! {error!r}')
            finally:
                sys.stdout.flush()
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        shutil.rmtree(folder)


if __name__ == '__main__':
    sys.exit(main())
