/* SPDX-License-Identifier: MIT */
/*
 * The socket by which an unmounter sees the server of a mount go away.
 *
 * The kernel holds connections that nobody accepts in the listener's queue and resets them when the
 * listener is closed. Anybody may connect, so the queue can be full: then a blocking connect waits
 * for the same event. Anybody may take a name too, so the owner of the socket is checked.
 */
#include "lifeline.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static socklen_t make_address(struct sockaddr_un *address, unsigned int major, unsigned int minor)
{
    int length;

    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "uext4-mount/%u:%u",
                      major, minor);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

int lifeline_listen(unsigned int major, unsigned int minor)
{
    struct sockaddr_un address;
    socklen_t size = make_address(&address, major, minor);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc;

    if (fd < 0)
        return -errno;
    /* The kernel may give us the number of a mount whose server is just ending. */
    for (int tries = 0; (rc = bind(fd, (struct sockaddr *)&address, size)) != 0; tries++) {
        if (errno != EADDRINUSE || tries >= 100)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    }
    if (rc != 0 || listen(fd, SOMAXCONN) != 0) {
        rc = -errno;
        close(fd);
        return rc;
    }
    return fd;
}

int lifeline_connect(struct lifeline *line, unsigned int major, unsigned int minor, uid_t owner)
{
    struct sockaddr_un address;
    socklen_t size = make_address(&address, major, minor);
    struct ucred peer;
    socklen_t peer_size = sizeof(peer);
    int rc = 0;

    *line = (struct lifeline){.major = major, .minor = minor};
    line->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (line->fd < 0)
        return -errno;
    if (connect(line->fd, (struct sockaddr *)&address, size) != 0) {
        if (errno == EAGAIN)
            return 0;
        rc = -errno;
        goto fail;
    }
    line->is_connected = true;
    if (getsockopt(line->fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) != 0) {
        rc = -errno;
        goto fail;
    }
    if (peer.uid == owner || peer.uid == 0)
        return 0;
    rc = -EPERM;
fail:
    lifeline_close(line);
    return rc;
}

static int wait_for_room(struct lifeline *line, int timeout_ms)
{
    struct timeval timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
    struct sockaddr_un address;
    socklen_t size = make_address(&address, line->major, line->minor);

    if (setsockopt(line->fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) != 0 ||
        fcntl(line->fd, F_SETFL, 0) != 0)
        return -errno;
    if (connect(line->fd, (struct sockaddr *)&address, size) == 0) {
        line->is_connected = true;
        return lifeline_wait(line, timeout_ms);
    }
    return errno == ECONNREFUSED ? 0 : -ETIMEDOUT;
}

int lifeline_wait(struct lifeline *line, int timeout_ms)
{
    struct pollfd wanted = {.fd = line->fd, .events = POLLIN};
    int rc;

    if (!line->is_connected)
        return wait_for_room(line, timeout_ms);
    do {
        rc = poll(&wanted, 1, timeout_ms);
    } while (rc < 0 && errno == EINTR);
    return rc > 0 ? 0 : rc == 0 ? -ETIMEDOUT : -errno;
}

void lifeline_close(struct lifeline *line)
{
    if (line->fd >= 0)
        close(line->fd);
    line->fd = -1;
}
