"""What tests do with images: run programs on them, and compare them block by block."""
import hashlib
import os
import subprocess


def run(*command):
    """Runs a program. Gives its exit code, standard output and standard error."""
    done = subprocess.run(command, capture_output=True, timeout=120)
    return done.returncode, done.stdout, done.stderr.decode(errors='replace')


def data_chunks(file, chunk_bytes):
    """The numbers of the chunks of an open file that are not holes."""
    end, place = os.fstat(file.fileno()).st_size, 0
    chunks = set()
    while place < end:
        try:
            start = os.lseek(file.fileno(), place, os.SEEK_DATA)
        except OSError:
            break
        place = os.lseek(file.fileno(), start, os.SEEK_HOLE)
        chunks.update(range(start // chunk_bytes, (place - 1) // chunk_bytes + 1))
    return chunks


def changed_blocks(before, after, block_bytes):
    """The numbers of the blocks in which two files differ. Holes are zeros."""
    changed = []
    with open(before, 'rb') as old, open(after, 'rb') as new:
        if os.fstat(old.fileno()).st_size != os.fstat(new.fileno()).st_size:
            raise RuntimeError('the size of the image was changed')
        for chunk in sorted(data_chunks(old, 65536) | data_chunks(new, 65536)):
            one = os.pread(old.fileno(), 65536, chunk * 65536)
            two = os.pread(new.fileno(), 65536, chunk * 65536)
            if one == two:
                continue
            changed += [(chunk * 65536 + place) // block_bytes
                        for place in range(0, len(one), block_bytes)
                        if one[place:place + block_bytes] != two[place:place + block_bytes]]
    return changed


def block_hash(path, block, block_bytes):
    """The hash of one block."""
    with open(path, 'rb') as file:
        return hashlib.sha256(os.pread(file.fileno(), block_bytes, block * block_bytes)).hexdigest()


def journal_blocks(image):
    """The blocks of the journal's inode, as debugfs tells them. Wrong checksums do not stop it:
    the metadata of a snapshot may be half written."""
    _, out, _ = run('debugfs', '-n', '-R', 'blocks <8>', image)
    return {int(number) for number in out.split()}


def block_size(image):
    """The block size of a file system, from its superblock."""
    with open(image, 'rb') as file:
        return 1024 << int.from_bytes(os.pread(file.fileno(), 4, 1024 + 24), 'little')


def run_checked(*command):
    """Runs a program that must succeed. Gives its standard output."""
    code, out, error = run(*command)
    if code != 0:
        raise RuntimeError('%s: exit code %d: %s' % (' '.join(command), code, error))
    return out


def copy_image(source, target):
    """Copies an image. Shares the blocks where the host's file system can, and keeps holes."""
    run_checked('cp', '--reflink=auto', '--sparse=auto', source, target)


def spoil_byte(image, offset_bytes):
    """Inverts a byte, to see that a comparison notices it."""
    with open(image, 'r+b') as file:
        byte = os.pread(file.fileno(), 1, offset_bytes)[0]
        os.pwrite(file.fileno(), bytes([byte ^ 0xff]), offset_bytes)


class JournalSuperblock:
    """The superblock of the journal of an image: where the log starts, its sequence number, and
    the other bytes without the checksum."""

    def __init__(self, image, block, block_bytes):
        with open(image, 'rb') as file:
            raw = os.pread(file.fileno(), block_bytes, block * block_bytes)
        self.sequence = int.from_bytes(raw[0x18:0x1c], 'big')
        self.start = int.from_bytes(raw[0x1c:0x20], 'big')
        self.rest = raw[:0x18] + raw[0x1c:0xfc] + raw[0x100:]
