"""Makes small good images of many shapes, the same bytes each time, so that a mutation's seed means
the same everywhere."""
import os
import subprocess

UUID = '01234567-89ab-4cde-8f01-23456789abcd'
SHAPES = {  # name: size in KiB, options of mke2fs
    'ext2-1k': (1024, ['-t', 'ext2', '-b', '1024', '-I', '128']),
    'ext2-rev0': (1024, ['-t', 'ext2', '-r', '0', '-b', '1024']),
    'ext3-1k': (4096, ['-t', 'ext3', '-b', '1024', '-J', 'size=1']),
    'ext4-1k': (4096, ['-t', 'ext4', '-b', '1024', '-J', 'size=1']),
    'ext4-4k': (2048, ['-t', 'ext4', '-b', '4096', '-O', '^has_journal']),
    'plain-4k': (2048, ['-t', 'ext4', '-b', '4096', '-O', '^has_journal,^metadata_csum']),
    'gdt-csum': (2048, ['-t', 'ext4', '-b', '1024', '-O',
                        '^has_journal,^metadata_csum,uninit_bg,^64bit']),
    'inline': (1024, ['-t', 'ext4', '-b', '1024', '-I', '256', '-O',
                      '^has_journal,inline_data']),
    'inline-plain': (1024, ['-t', 'ext4', '-b', '2048', '-I', '512', '-O',
                            '^has_journal,inline_data,^metadata_csum']),
    'bigalloc': (4096, ['-t', 'ext4', '-b', '1024', '-C', '4096', '-O',
                        '^has_journal,bigalloc,^resize_inode']),
    'ea-inode': (2048, ['-t', 'ext4', '-b', '1024', '-O',
                        '^has_journal,ea_inode,large_dir,^metadata_csum']),
    'meta-bg': (9216, ['-t', 'ext4', '-b', '1024', '-g', '1024', '-O',
                       '^has_journal,meta_bg,^resize_inode,^flex_bg']),
    'casefold': (2048, ['-t', 'ext4', '-b', '1024', '-O', '^has_journal,casefold']),
    'encrypt': (2048, ['-t', 'ext4', '-b', '1024', '-O', '^has_journal,encrypt,verity']),
    'orphan-file': (8192, ['-t', 'ext4', '-b', '1024', '-J', 'size=2', '-O',
                           'orphan_file,fast_commit,quota,project', '-I', '256']),
    'sparse2': (9216, ['-t', 'ext4', '-b', '1024', '-g', '2048', '-O',
                       '^has_journal,sparse_super2,metadata_csum_seed,^resize_inode']),
    '64k': (16384, ['-t', 'ext4', '-b', '65536', '-O', '^has_journal,^metadata_csum']),
    'dirty-ext3': (4096, ['-t', 'ext3', '-b', '1024', '-J', 'size=1']),
    'dirty-ext4': (4096, ['-t', 'ext4', '-b', '1024', '-J', 'size=1']),
    'dirty-v1': (4096, ['-t', 'ext4', '-b', '1024', '-J', 'size=1', '-O', '^metadata_csum']),
}


def fill_tree(tree):
    """A small tree with every kind of metadata that mke2fs -d can copy."""
    os.makedirs(tree + '/a/b/c')
    os.makedirs(tree + '/links')
    os.makedirs(tree + '/many')
    for i in range(150):
        open('%s/many/%s%d' % (tree, 'x' * (i % 40), i), 'w').close()
    for i in range(20):
        os.makedirs('%s/a/b/dir%d/below' % (tree, i))
    with open(tree + '/a/small', 'w') as file:
        file.write('small')
    with open(tree + '/a/large', 'wb') as file:
        file.write(b'large' * 40000)
    with open(tree + '/a/holes', 'wb') as file:
        for i in range(90):
            file.seek(i * 8192 + (i * i << 12))
            file.write(b'data')
    os.symlink('a/b', tree + '/link')
    os.symlink('a/' * 100 + 'b', tree + '/links/long')
    os.symlink('loop', tree + '/links/loop')
    os.link(tree + '/a/small', tree + '/a/b/hard')
    os.mkfifo(tree + '/a/fifo')
    values = [('user.short', b'value'), ('user.long', b'v' * 300), ('user.empty', b''),
              ('user.huge', b'h' * 500)]
    for name, value in values:
        for path in ('/a/small', '/a', '/a/b'):
            try:
                os.setxattr(tree + path, name, value)
            except OSError:
                pass
    for path, _, names in os.walk(tree, topdown=False):
        for name in names + ['.']:
            os.utime(os.path.join(path, name), (1600000000, 1600000000), follow_symlinks=False)


def run(command, **options):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if result.returncode not in (0, 1):
        raise RuntimeError('%s: %s' % (' '.join(command), result.stdout.decode()))


def make_dirty(path, has_checksum):
    """Leaves transactions and revokes in the journal."""
    script = 'jo%s\njw -b 3900,3901 /dev/zero\njw -r 3902,3903\njw -b 3910-3930 %s\njw -b 3902 /dev/zero\n' \
             'jc\n' % (' -c' if has_checksum else '', path)
    run(['debugfs', '-w', '-f', '/dev/stdin', path], input=script.encode())


def make_images(folder):
    """Returns the paths of the images, and the names of the shapes that mke2fs here cannot make."""
    environment = dict(os.environ, E2FSPROGS_FAKE_TIME='1600000000', MKE2FS_DETERMINISTIC='1')
    paths, missing = [], []
    fill_tree(folder + '/tree')
    for name, (size, options) in SHAPES.items():
        path = '%s/%s.img' % (folder, name)
        command = ['mke2fs', '-q', '-F', '-U', UUID, '-E', 'hash_seed=' + UUID, '-N', '256', '-d',
                   folder + '/tree', *options, path, '%dk' % size]
        result = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE)
        if result.returncode != 0:
            missing.append('%s (%s)' % (name, result.stderr.decode().strip()[:80]))
            continue
        run(['e2fsck', '-fyD', path], env=environment)
        if name.startswith('dirty'):
            make_dirty(path, '^metadata_csum' not in options and 'ext4' in options)
        paths.append(path)
    return paths, missing
