"""Images made to cost a reader as much as possible: maps that run in circles, blocks that stand for
many, sizes far beyond what is there. Each is a good image with a few inodes and blocks rewritten."""
import os
import struct
import subprocess

BLOCK = 4096
FILE, DIRECTORY, LINK = 0o100644, 0o040755, 0o120777
EXTENTS_FLAG, INDEX_FLAG = 0x80000, 0x1000


class Image:
    """An ext2 or ext4 image without checksums, of one or more groups, open for rewriting."""

    def __init__(self, path, size, features='', files=1, directories=0, block=BLOCK):
        self.path, self.block = path, block
        tree = path + '.tree'
        os.mkdir(tree)
        for i in range(files):
            open('%s/f%d' % (tree, i), 'w').close()
        for i in range(directories):
            os.mkdir('%s/d%d' % (tree, i))
        with open(path, 'wb') as file:
            file.truncate(size)
        subprocess.run(['mke2fs', '-q', '-F', '-t', 'ext4', '-b', str(block), '-I', '128', '-N', '4096',
                        '-E', 'lazy_itable_init=1', '-O', '^has_journal,^metadata_csum,^64bit,'
                        '^resize_inode,^uninit_bg,sparse_super2' + features, '-d', tree, path],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        subprocess.run(['rm', '-r', tree], check=True)
        self.file = open(path, 'r+b')
        superblock = self.read(1024, 1024)
        self.inodes_per_group, = struct.unpack_from('<I', superblock, 0x28)
        self.block_count, = struct.unpack_from('<I', superblock, 4)
        self.next_block = self.block_count // 2 if size <= 1 << 30 else 20000
        self.names = {}
        root = self.inode(2)
        first = 40 if ',^extents' in features else 40 + 20
        entries = self.read(struct.unpack_from('<I', root, first)[0] * block, block)
        at = 0
        while at < block:
            ino, record, length = struct.unpack_from('<IHB', entries, at)
            self.names[entries[at + 8:at + 8 + length].decode()] = ino
            at += max(record, 12)

    def read(self, offset, length):
        self.file.seek(offset)
        return self.file.read(length)

    def write(self, offset, data):
        self.file.seek(offset)
        self.file.write(data)

    def inode_place(self, ino):
        group, index = divmod(ino - 1, self.inodes_per_group)
        first = 2 * 1024 if self.block == 1024 else self.block
        table, = struct.unpack('<I', self.read(first + 32 * group + 8, 4))
        return table * self.block + index * 128

    def inode(self, ino):
        return self.read(self.inode_place(ino), 128)

    def set_inode(self, ino, mode, size, i_block, flags=0, xattr=0, links=1):
        i_block = i_block.ljust(60, b'\0')
        raw = struct.pack('<HHIIIIIHHIII', mode, 0, size & 0xffffffff, 0, 0, 0, 0, 0, links,
                          size // 512 & 0xffffffff, flags, 0) + i_block
        raw += struct.pack('<III', 0, xattr, size >> 32)
        self.write(self.inode_place(ino), raw.ljust(128, b'\0'))

    def allocate(self):
        self.next_block += 1
        return self.next_block

    def put_block(self, data, number=None):
        number = number or self.allocate()
        self.write(number * self.block, data.ljust(self.block, b'\0'))
        return number

    def numbers(self, value):
        """An indirect block full of one number."""
        return self.put_block(struct.pack('<I', value) * (self.block // 4))

    def close(self):
        self.file.close()


def entry(ino, name, record, kind=2):
    return (struct.pack('<IHBB', ino, record, len(name), kind) + name).ljust(record, b'\0')


def extent_leaf(extents, depth=0, capacity=340):
    data = struct.pack('<HHHHI', 0xf30a, len(extents), capacity, depth, 0)
    for first, length, disk in extents:
        data += (struct.pack('<IHHI', first, length, disk >> 32, disk & 0xffffffff) if depth == 0 else
                 struct.pack('<IIHH', first, disk & 0xffffffff, disk >> 32, 0))
    return data


def circle(path):
    """A file of 4 TiB whose triple indirect block holds its own number everywhere."""
    image = Image(path, 10 << 20, ',^extents')
    block = image.allocate()
    image.put_block(struct.pack('<I', block) * (BLOCK // 4), block)
    image.set_inode(image.names['f0'], FILE, (1 << 42) - 1, struct.pack('<I', block) * 15)
    image.close()


def holes(path):
    """A file of 4 TiB, a hole all over, told one indirect block at a time."""
    image = Image(path, 10 << 20, ',^extents', files=20)
    empty = image.put_block(b'')
    top = image.numbers(image.numbers(empty))
    for i in range(20):
        image.set_inode(image.names['f%d' % i], FILE, (1 << 42) - 1,
                        struct.pack('<III', empty, image.numbers(empty), top).rjust(60, b'\0'))
    image.close()


def extents(path):
    """Files of terabytes: thousands of extents that are all the same blocks."""
    image = Image(path, 200 << 20, files=8)
    leaves = [image.put_block(extent_leaf([((i * 340 + k) * 30000, 30000, 2000)
                                           for k in range(340)])) for i in range(4)]
    root = extent_leaf([(i * 340 * 30000, 0, leaf) for i, leaf in enumerate(leaves)], 1, 4)
    for i in range(8):
        image.set_inode(image.names['f%d' % i], FILE, 1 << 43, root, EXTENTS_FLAG)
    image.close()


def directories(path):
    """Directories that consist of one block over and over, whose names are these directories."""
    image = Image(path, 10 << 20, ',^extents', directories=200)
    inos = [image.names['d%d' % i] for i in range(200)]
    names = b''.join(entry(ino, b'%03d' % i, 12) for i, ino in enumerate(inos))
    used = len(names)
    names += entry(inos[0], b'last', BLOCK - used)
    block = image.put_block(names)
    indirect = image.numbers(block)
    i_block = struct.pack('<I', block) * 12 + struct.pack('<II', indirect, image.numbers(indirect))
    for ino in inos:
        image.set_inode(ino, DIRECTORY, image.block_count * BLOCK, i_block, links=2)
    image.close()


def sparse_directory(path):
    """A directory of 99 GiB of zeros."""
    image = Image(path, 100 << 30, directories=1)
    size = 99 << 30
    count = size // BLOCK
    leaf_blocks = []
    for start in range(0, count, 32768 * 340):
        leaf_blocks.append((start, 0, image.put_block(extent_leaf(
            [(first, 32768, 30000 + first) for first in
             range(start, min(start + 32768 * 340, count - 32768), 32768)]))))
    image.set_inode(image.names['d0'], DIRECTORY, size & 0xffffffff, extent_leaf(leaf_blocks, 1, 4),
                    EXTENTS_FLAG, links=2)
    image.write(image.inode_place(image.names['d0']) + 108, struct.pack('<I', size >> 32))
    superblock = image.read(1024, 1024)
    incompat, = struct.unpack_from('<I', superblock, 0x60)
    image.write(1024 + 0x60, struct.pack('<I', incompat | 0x4000))
    image.close()


def journal(path):
    """A journal of 900 MiB whose blocks are all the same one."""
    image = Image(path, 1 << 30, ',^extents', block=1024)
    block = image.allocate()
    header = struct.pack('>IIIIIIII', 0xc03b3998, 4, 0, 1024, 900 << 10, 1, 5, 1)
    image.put_block(struct.pack('<I', block) * 256, block)
    sb = image.put_block(header)
    image.set_inode(8, FILE, 900 << 20, struct.pack('<I', sb) + struct.pack('<I', block) * 14)
    superblock = image.read(1024, 1024)
    compat, incompat = struct.unpack_from('<II', superblock, 0x5c)
    image.write(1024 + 0x5c, struct.pack('<II', compat | 4, incompat | 4))
    image.write(1024 + 0xe0, struct.pack('<I', 8))
    image.close()


def attributes(path):
    """Attribute blocks of 64 KiB full of the shortest entries."""
    image = Image(path, 32 << 20, files=30, block=65536)
    names = b''.join(struct.pack('<BBHIII', 0, 2, 0, 0, 0, 0) for _ in range(4090))
    block = image.put_block(struct.pack('<IIIII', 0xea020000, 1, 1, 0, 0).ljust(32, b'\0') + names)
    for i in range(30):
        image.set_inode(image.names['f%d' % i], FILE, 0, b'', EXTENTS_FLAG, xattr=block)
    image.close()


def index(path):
    """A hash index in which every entry leads to one leaf with one hash."""
    image = Image(path, 40 << 20, directories=1)
    ino = image.names['d0']
    blocks = 4000
    leaf = image.put_block(entry(ino, b'name', BLOCK))
    limit = (BLOCK - 8) // 8
    node = struct.pack('<IHBB', 0, BLOCK, 0, 0) + struct.pack('<HHI', limit, limit, 2)
    node += struct.pack('<II', 0, 2) * (limit - 1)
    limit = (BLOCK - 32) // 8
    root = entry(ino, b'.', 12) + entry(2, b'..', 12)[:12]
    root = bytearray(root)
    root[16:18] = struct.pack('<H', BLOCK - 12)
    root = bytes(root) + struct.pack('<IBBBB', 0, 0, 8, 1, 0) + struct.pack('<HHI', limit, limit, 1)
    root += struct.pack('<II', 0, 1) * (limit - 1)
    first = image.put_block(root)
    second = image.put_block(node)
    tree = [(0, 1, first), (1, 1, second), (2, 1, leaf), (3, 4000, 3000)]
    image.set_inode(ino, DIRECTORY, blocks * BLOCK, extent_leaf(tree, 0, 4),
                    EXTENTS_FLAG | INDEX_FLAG, links=2)
    image.close()


def links(path):
    """A link whose target is thousands of steps, each of them a search of a long directory."""
    image = Image(path, 20 << 20, ',^extents', files=1, directories=1)
    text = b'd0/../' * 600
    block = image.put_block(text)
    image.set_inode(image.names['f0'], LINK, len(text), struct.pack('<I', block))
    image.close()


CRAFTED = [circle, holes, extents, directories, sparse_directory, journal, attributes, index, links]


def make_images(folder):
    paths = []
    for make in CRAFTED:
        path = '%s/%s.img' % (folder, make.__name__)
        make(path)
        paths.append(path)
    return paths
