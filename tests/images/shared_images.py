"""Finds and unpacks the archives of images that other projects made; see the README there."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile


def folder():
    """The folder of the archives."""
    root = os.environ.get('UEXT4_SOURCE_ROOT', '.')
    return pathlib.Path(os.environ.get('UEXT4_IMAGES', os.path.join(root, '../shared/images')))


def skip_all(reason):
    """Ends the test program with a visible skip."""
    print('1..0 # SKIP ' + reason)
    sys.exit(0)


class Unpacked:
    """The files of one archive in a temporary folder, removed at the end."""

    def __init__(self, name):
        self.archive = folder() / (name + '.tar.zst')
        if not self.archive.exists():
            skip_all('no %s here' % self.archive)
        if shutil.which('zstd') is None:
            skip_all('no zstd program')

    def __enter__(self):
        self.temp = tempfile.TemporaryDirectory(prefix='uext4-images-')
        subprocess.run(['tar', '--zstd', '-S', '-xf', self.archive, '-C', self.temp.name],
                       check=True)
        # Each archive holds one folder.
        return next(pathlib.Path(self.temp.name).iterdir())

    def __exit__(self, *unused):
        self.temp.cleanup()


class Tap:
    """Counts and prints the results."""

    def __init__(self):
        self.count = self.failures = 0

    def result(self, is_good, name, details=()):
        """Prints one result, and what to know of a failure."""
        self.count += 1
        print('%sok %d - %s' % ('' if is_good else 'not ', self.count, name), flush=True)
        if not is_good:
            self.failures += 1
            for line in list(details)[:20]:
                print('# ' + str(line), flush=True)

    def skip(self, name, reason):
        """Prints a result that was not looked at, and why."""
        self.count += 1
        print('ok %d - %s # SKIP %s' % (self.count, name, reason), flush=True)

    def end(self):
        """Prints the plan and gives the exit code."""
        print('1..%d' % self.count)
        return 1 if self.failures else 0
