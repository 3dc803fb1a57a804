#!/usr/bin/env python3
"""hostile.py WALK COMMAND PART: runs hostile-walk and the command over images that nobody vouches
for; each run has 10 s of processor time and 256 MiB, and may end with an error but not with a
signal, a sanitizer's report or a leak. PART is `crafted` (made here to be costly) or `corrupt`
(those of $UEXT4_IMAGES). Output: TAP."""
import concurrent.futures
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import crafted

SECONDS, REAL_SECONDS, MEBIBYTES = 10, 120, 256
SANITIZER_EXIT = 99
# Memory is measured instead of limited: sanitizers map terabytes.
LIMITS = ['prlimit', '--cpu=%d:%d' % (SECONDS, SECONDS + 1), '--core=0']


def run(command):
    """Runs a command under the limits. Returns what is wrong, or None."""
    environment = dict(os.environ)
    for name in ('ASAN_OPTIONS', 'UBSAN_OPTIONS', 'LSAN_OPTIONS'):
        environment[name] = environment.get(name, '') + ':exitcode=%d' % SANITIZER_EXIT
    environment['ASAN_OPTIONS'] += ':quarantine_size_mb=16:allocator_may_return_null=1'
    environment['UBSAN_OPTIONS'] += ':halt_on_error=1'
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(LIMITS + command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=errors, env=environment)
        deadline = time.monotonic() + REAL_SECONDS
        pid = 0
        while pid == 0:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid == 0 and time.monotonic() > deadline:
                process.kill()
                process.wait()
                return 'hangs'
            if pid == 0:
                time.sleep(0.002)
        code = process.returncode = os.waitstatus_to_exitcode(status)
        if code in (-signal.SIGXCPU, -signal.SIGPROF, -signal.SIGKILL):
            return 'takes more than %d s' % SECONDS
        if code < 0 or code == SANITIZER_EXIT or code > 3:
            errors.seek(0)
            text = errors.read().decode(errors='replace')
            lines = [line for line in text.splitlines()
                     if 'ERROR' in line or 'runtime error' in line or 'broken contract' in line]
            return 'ends with %d: %s' % (code, lines[0] if lines else text[-200:])
        if usage.ru_maxrss > MEBIBYTES * 1024:
            return 'takes %d MiB' % (usage.ru_maxrss // 1024)
    return None


def check(walk, command, image, scratch):
    """All problems with one image."""
    target = tempfile.mkdtemp(prefix='copy-', dir=scratch)
    runs = [[walk, '-m', str(1 << mode), image] for mode in range(4)]
    if os.access(command, os.X_OK):
        runs += [[command, 'info', image], [command, 'ls', '-l', '-R', image, '/'],
                 [command, 'get', '-q', image, '/', target]]
    problems = []
    for arguments in runs:
        problem = run(arguments)
        if problem is not None:
            problems.append('%s %s' % (' '.join(arguments), problem))
    subprocess.run(['chmod', '-R', 'u+rwx', target], stderr=subprocess.DEVNULL)
    shutil.rmtree(target, ignore_errors=True)
    return problems


def find_corrupt(scratch):
    """The images of corrupt/, or None."""
    root = os.environ.get('UEXT4_SOURCE_ROOT', '.')
    folder = os.environ.get('UEXT4_IMAGES', os.path.join(root, '../shared/images'))
    archive = os.path.join(folder, 'e2fsprogs.tar.zst')
    if not os.path.exists(archive):
        return None
    subprocess.run(['tar', '--zstd', '-S', '-xf', archive, '-C', scratch, '--wildcards',
                    '*/corrupt/*'], check=True)
    paths = []
    for path, _, names in os.walk(scratch):
        paths += [os.path.join(path, name) for name in names if '/corrupt' in path]
    return sorted(paths)


def find_scratch():
    """Memory, if there is enough of it: most of the time goes into files otherwise."""
    shared = '/dev/shm'
    if os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 4 << 30:
        return shared
    return None


def main():
    walk, command, part = sys.argv[1:4]
    with tempfile.TemporaryDirectory(prefix='uext4-hostile-', dir=find_scratch(),
                                     ignore_cleanup_errors=True) as scratch:
        images = crafted.make_images(scratch) if part == 'crafted' else find_corrupt(scratch)
        if images is None:
            print('1..0 # SKIP no images of others (UEXT4_IMAGES)')
            return
        print('1..%d' % len(images))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            results = pool.map(lambda image: check(walk, command, image, scratch), images)
            for number, (image, problems) in enumerate(zip(images, results), 1):
                for problem in problems:
                    print('# ' + problem)
                print('%sok %d - %s' % ('not ' if problems else '', number,
                                        os.path.basename(image)), flush=True)


main()
