/* SPDX-License-Identifier: MIT */
/*
 * The entry points of the FUSE mount, for the command's main function.
 *
 * argv[0] decides on the form of the command line: a name that starts with "mount." or "umount."
 * (mount.uext4, umount.fuse.uext4) means the form that mount(8) and umount(8) use for their
 * helpers, where -f is "fake" and "force". Any other name ("mount" of `uext4 mount`) means the form
 * of the uext4 command, where -f is "foreground".
 *
 * Both return the exit status of the process: 0, or for wrong usage and for failure the numbers of
 * mount(8) (1, 32) in the helper form and those of the uext4 command (2, 1) in the other.
 */
#ifndef UEXT4_FUSE_MOUNT_H
#define UEXT4_FUSE_MOUNT_H

/*
 * Mounts an image. In the background form it returns 0 in the caller's process once the mount is
 * usable; the serving process returns from it too, after the unmount.
 */
int mount_main(int argc, char **argv);

/* Unmounts, and waits until the image is closed. */
int umount_main(int argc, char **argv);

#endif
