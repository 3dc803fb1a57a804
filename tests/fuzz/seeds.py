#!/usr/bin/env python3
"""seeds.py FOLDER: makes small images with mke2fs and takes from them what the fuzz targets begin
with: FOLDER/TARGET/ gets one file for each superblock, inode, block and journal found, in the form
that TARGET reads (its first four bytes choose the shape of the file system, see fuzz.c)."""
import hashlib
import os
import struct
import subprocess
import sys
import tempfile

SHAPES = [  # size in KiB, options of mke2fs
    (160, ['-t', 'ext2', '-b', '1024', '-I', '128']),
    (256, ['-t', 'ext4', '-b', '1024', '-O', '^has_journal,inline_data,^resize_inode']),
    (640, ['-t', 'ext4', '-b', '4096', '-O', '^has_journal,^resize_inode,large_dir,ea_inode']),
    (320, ['-t', 'ext4', '-b', '1024', '-O', '^has_journal,^metadata_csum,^64bit,meta_bg,'
                                             '^resize_inode']),
    (4096, ['-t', 'ext4', '-b', '1024', '-J', 'size=1']),
    (4096, ['-t', 'ext3', '-b', '1024', '-J', 'size=1']),
    (6144, ['-t', 'ext4', '-b', '1024', '-J', 'size=2', '-O', 'fast_commit']),
]


def run(*command, **options):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   **options)


def fill_tree(tree):
    """A small tree with every kind of metadata that mke2fs -d can copy."""
    os.makedirs(tree + '/a/b/c')
    os.makedirs(tree + '/links')
    os.makedirs(tree + '/many')
    for i in range(60):
        open('%s/many/%s%d' % (tree, 'x' * (i % 40), i), 'w').close()
    with open(tree + '/a/small', 'w') as file:
        file.write('small')
    with open(tree + '/a/holes', 'wb') as file:
        for i in range(12):
            file.seek(i * 8192)
            file.write(b'data')
    os.symlink('a/b', tree + '/link')
    os.symlink('a/' * 100 + 'b', tree + '/links/long')
    os.symlink('loop', tree + '/links/loop')
    for name, value in (('user.short', b'value'), ('user.long', b'v' * 300)):
        try:
            os.setxattr(tree + '/a/small', name, value)
            os.setxattr(tree + '/a', name, value)
        except OSError:
            pass


def make_image(path, size, options, tree):
    run('mke2fs', '-q', '-F', '-N', '96', '-d', tree, *options, path, '%dk' % size)
    subprocess.run(['e2fsck', '-fyD', path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if '-J' not in options:
        return
    script = 'jo %s\njw -b 30 /dev/zero\njw -r 31\njw -b 40,41 %s\njc\n' % (
        '-c' if 'ext4' in options else '', tree + '/a/holes')
    run('debugfs', '-w', '-f', '/dev/stdin', path, input=script.encode())


class Folder:
    def __init__(self, path):
        self.path = path

    def add(self, target, data):
        folder = os.path.join(self.path, target)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, hashlib.sha1(data).hexdigest()[:16]), 'wb') as file:
            file.write(data)


def choices(image):
    """What fuzz_make_superblock makes a like file system of."""
    superblock = image[1024:2048]
    log_block, = struct.unpack_from('<I', superblock, 0x18)
    inode_bytes, = struct.unpack_from('<H', superblock, 0x58)
    incompat, ro_compat = struct.unpack_from('<II', superblock, 0x60)
    return (log_block | (inode_bytes // 128).bit_length() - 1 << 3 | (incompat >> 7 & 1) << 7 |
            (incompat >> 14 & 1) << 8 | (incompat >> 10 & 1) << 9 | (ro_compat >> 10 & 1) << 13)


def take_inodes(folder, image, block_bytes, head):
    inode_bytes, = struct.unpack_from('<H', image, 1024 + 0x58)
    descriptors = 2048 if block_bytes == 1024 else block_bytes
    table, = struct.unpack_from('<I', image, descriptors + 8)
    for number in range(1, 97):
        start = table * block_bytes + (number - 1) * inode_bytes
        inode = image[start:start + inode_bytes]
        if inode[:2] != b'\0\0':
            folder.add('inode', struct.pack('<II', head, number) + inode)
            if inode[40:42] == b'\x0a\xf3':
                folder.add('extent', struct.pack('<I', head | 1 << 16) + inode[40:100])


def is_directory(block):
    record, length = struct.unpack_from('<HB', block, 4)
    return block[:4] != b'\0\0\0\0' and record == 12 and length == 1 and block[8:9] == b'.'


def take_blocks(folder, image, block_bytes, head):
    for start in range(block_bytes, len(image) - block_bytes + 1, block_bytes):
        block = image[start:start + block_bytes]
        if block[:2] == b'\x0a\xf3':
            folder.add('extent', struct.pack('<I', head) + block)
        elif block[:4] == b'\0\0\x02\xea':
            folder.add('xattr', struct.pack('<I', head) + b'user.x'.ljust(31, b'\0') + block)
        elif is_directory(block) or block.count(b'xxxx') > 4:
            folder.add('directory', struct.pack('<I', head | 1 << 17) + block)
        elif block[:8] == b'\xc0\x3b\x39\x98\0\0\0\x04':
            journal = image[start:start + (1 << 19)].rstrip(b'\0')
            for flags in (0, 2, 6):
                folder.add('journal', struct.pack('<I', flags) + journal)


def take(folder, image):
    log_block, = struct.unpack_from('<I', image, 1024 + 0x18)
    head = choices(image)
    descriptors = 2048 if log_block == 0 else 1024 << log_block
    folder.add('superblock', image[1024:2048] + struct.pack('<I', 1) +
               image[descriptors:descriptors + 64])
    take_inodes(folder, image, 1024 << log_block, head)
    take_blocks(folder, image, 1024 << log_block, head)
    if len(image) <= 1 << 20:
        folder.add('image', image)


def main():
    folder = Folder(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        fill_tree(scratch + '/tree')
        for number, (size, options) in enumerate(SHAPES):
            path = '%s/%d.img' % (scratch, number)
            make_image(path, size, options, scratch + '/tree')
            with open(path, 'rb') as file:
                take(folder, file.read())


main()
