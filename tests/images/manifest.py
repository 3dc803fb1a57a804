#!/usr/bin/env python3
"""Compares images that others made with what the Linux kernel shows of them.

manifest.py ARCHIVE MANIFEST: through the library, `uext4 get` and the mount. Environment: UEXT4_BIN,
UEXT4_STREAM (the libstream program), UEXT4_IMAGES.
"""
import contextlib
import datetime
import hashlib
import os
import pathlib
import stat
import subprocess
import sys
import tempfile

from shared_images import Tap, Unpacked

# What `get` cannot bring to a host without changing it: the link count of a directory counts
# subdirectories in the same way everywhere but for some host file systems, and its size is the
# host's.
TYPES = {stat.S_IFREG: 'f', stat.S_IFDIR: 'd', stat.S_IFLNK: 'l', stat.S_IFCHR: 'c',
         stat.S_IFBLK: 'b', stat.S_IFIFO: 'p', stat.S_IFSOCK: 's'}


def time_text(seconds, nanoseconds):
    """A time as the manifests have it: UTC, and ten digits of which the last is 0."""
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    return '%s.%09d0' % (moment.strftime('%Y-%m-%dT%H:%M:%S'), nanoseconds)


def expectations(path):
    """The lines of a manifest, by image."""
    result = {}
    for line in path.read_text(errors='surrogateescape').splitlines():
        # The last field of a link's line is empty ("-") for the sum that it does not have.
        fields = line.split('\t')[:10]
        result.setdefault(fields[0], []).append(tuple(fields[1:]))
    return result


def row(kind, mode, uid, gid, size, nlink, mtime, path, content):
    """A line of a manifest without the image's name."""
    return (kind, '0%o' % mode, str(uid), str(gid), str(size), str(nlink), mtime, path, content)


def library_rows(program, image):
    """Reads the stream of libstream. Gives the rows, and the paths that were refused."""
    rows, refused = [], {}
    with subprocess.Popen([program, image], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        while line := process.stdout.readline():
            kind, mode, uid, gid, size, nlink, mtime, path_len, length = line.decode().split()
            path = os.fsdecode(process.stdout.read(int(path_len)))
            content = process.stdout.read(int(length))
            if kind == '!':
                refused[path] = content.decode()
                continue
            seconds, nanoseconds = mtime.split('.')
            detail = '-'
            if kind == 'f':
                detail = hashlib.sha256(content).hexdigest()
            elif kind == 'l':
                detail = os.fsdecode(content)
            rows.append(row(kind, int(mode, 8), uid, gid, size, nlink,
                            time_text(int(seconds), int(nanoseconds)), path, detail))
        errors = process.stderr.read().decode()
    if process.returncode != 0:
        raise RuntimeError('libstream: exit code %d: %s' % (process.returncode, errors))
    return [r for r in rows if r[7] != '.'], refused


def host_rows(top):
    """The rows of a tree of the host. Gives them, and the paths that were refused."""
    rows, refused = [], {}
    for folder, dirs, files in os.walk(top, onerror=lambda e: refused.update(
            {'./' + os.path.relpath(e.filename, top): e.strerror})):
        for name in dirs + files:
            path = os.path.join(folder, name)
            st = os.lstat(path)
            kind = TYPES[stat.S_IFMT(st.st_mode)]
            shown = './' + os.path.relpath(path, top)
            content = '-'
            try:
                if kind == 'f':
                    content = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
                elif kind == 'l':
                    content = os.readlink(path)
            except OSError as error:
                refused[shown] = error.strerror
                continue
            rows.append(row(kind, stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid, st.st_size,
                            st.st_nlink, time_text(*divmod(st.st_mtime_ns, 10**9)), shown, content))
    return rows, refused


def plain(rows):
    """What every host can hold: all but the size of directories, which is the host's own."""
    return [r if r[0] != 'd' else r[:4] + ('-',) + r[5:] for r in rows]


def difference(expected, got):
    """The lines of the one that are not in the other, marked."""
    expected, got = set(expected), set(got)
    return (['expected: ' + repr(r) for r in sorted(expected - got)] +
            ['     got: ' + repr(r) for r in sorted(got - expected)])


def below(path, folders):
    return any(path.startswith(folder + '/') for folder in folders)


@contextlib.contextmanager
def mounted(program, image):
    """The image mounted in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix='uext4-mount-') as folder:
        subprocess.run([program, 'mount', image, folder], check=True, capture_output=True,
                       timeout=60)
        try:
            yield folder
        finally:
            subprocess.run([program, 'umount', folder], check=True, capture_output=True, timeout=60)


def check_refusals(refused):
    """Only encrypted things may be refused, and in the words for a missing key."""
    return ['refused: %s: %s' % item for item in refused.items()
            if item[1] != os.strerror(126)]


def check_image(tap, image, expected, program, stream):
    """The three ways of one image."""
    rows, refused = library_rows(stream, str(image))
    encrypted = list(refused)
    visible = [r for r in expected if not below(r[7], encrypted)]
    problems = difference(visible, rows) + check_refusals(refused)
    tap.result(not problems, '%s: library, %d entries' % (image.name, len(rows)), problems)

    with tempfile.TemporaryDirectory(prefix='uext4-get-') as folder:
        done = subprocess.run([program, 'get', '-q', image, '/', folder + '/tree'],
                              capture_output=True, text=True, timeout=120)
        got, _ = host_rows(folder + '/tree')
        problems = difference(plain(visible), plain(got))
        if done.returncode != (1 if encrypted else 0):
            problems.append('exit code %d: %s' % (done.returncode, done.stderr[-500:]))
        if os.geteuid() == 0:
            tap.result(not problems, '%s: get' % image.name, problems)
        else:
            tap.skip('%s: get' % image.name, 'owners and device nodes take root')

    if not os.access('/dev/fuse', os.W_OK):
        tap.skip('%s: mount' % image.name, 'no /dev/fuse')
        return
    with mounted(program, image) as folder:
        got, refused = host_rows(folder)
    problems = difference(visible, got) + check_refusals(refused)
    tap.result(not problems, '%s: mount' % image.name, problems)


def main():
    archive, manifest = sys.argv[1:3]
    tap = Tap()
    with Unpacked(archive) as folder:
        for name, expected in sorted(expectations(folder / manifest).items()):
            try:
                check_image(tap, folder / name, expected, os.environ['UEXT4_BIN'],
                            os.environ['UEXT4_STREAM'])
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                details = [error, getattr(error, 'stderr', b'')]
                tap.result(False, '%s: %s' % (name, type(error).__name__), details)
    return tap.end()


if __name__ == '__main__':
    sys.exit(main())
