/* SPDX-License-Identifier: MIT */
/*
 * How an unmounter waits until the serving process has closed the image.
 *
 * The server listens on a socket whose abstract name holds the device number of the mount, and
 * never accepts. Who wants to wait connects to it before the unmount; the kernel ends the
 * connection when the server closes the socket, or dies. So nothing can be left over, no process id
 * can be mistaken for another, and the server needs no thread for it.
 */
#ifndef UEXT4_FUSE_LIFELINE_H
#define UEXT4_FUSE_LIFELINE_H

#include <stdbool.h>
#include <sys/types.h>

struct lifeline {
    unsigned int major, minor; /* device number of the mount */
    int fd;
    bool is_connected; /* false when the queue of the server was full */
};

/* Server: returns a socket to hold until the image is closed, or -errno. */
int lifeline_listen(unsigned int major, unsigned int minor);

/*
 * Unmounter: takes hold of the server of a mount. Never waits. Returns 0, or -ECONNREFUSED when
 * there is none, -EPERM when it belongs neither to `owner` nor to root.
 */
int lifeline_connect(struct lifeline *line, unsigned int major, unsigned int minor, uid_t owner);

/* Waits until the server is gone: 0, or -ETIMEDOUT. */
int lifeline_wait(struct lifeline *line, int timeout_ms);

void lifeline_close(struct lifeline *line);

#endif
