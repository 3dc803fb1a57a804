#!/usr/bin/env python3
"""mutations.py MUTATE: makes good images and runs UEXT4_MUTATIONS (default 1000) seeded mutations
of them; UEXT4_MUTATION_SEED repeats a run. Output: that of mutate, TAP. The full run of 10,000:

    UEXT4_MUTATIONS=10000 meson test -C build-asan --suite hostile mutations
"""
import os
import subprocess
import sys
import tempfile

import images


def main():
    environment = dict(os.environ)
    environment['ASAN_OPTIONS'] = environment.get('ASAN_OPTIONS', '') + \
        ':quarantine_size_mb=16:allocator_may_return_null=1'
    environment['UBSAN_OPTIONS'] = environment.get('UBSAN_OPTIONS', '') + ':halt_on_error=1'
    keep = os.environ.get('UEXT4_MUTATION_KEEP', tempfile.gettempdir())
    with tempfile.TemporaryDirectory(prefix='uext4-mutations-') as folder:
        paths, missing = images.make_images(folder)
        for name in missing:
            print('# mke2fs makes no image of shape ' + name, flush=True)
        command = [sys.argv[1], '--count', os.environ.get('UEXT4_MUTATIONS', '1000'), '--jobs',
                   str(os.cpu_count() or 1), '--keep', keep]
        if 'UEXT4_MUTATION_SEED' in os.environ:
            command += ['--seed', os.environ['UEXT4_MUTATION_SEED']]
        sys.exit(subprocess.run(command + paths, env=environment).returncode)


main()
