/* Loaded before libc (LD_PRELOAD): counts writes, fsyncs and renames below a folder, and lets one of them fail.

   A file that all processes of a run map says which: its count grows with every call, and where it reaches `at` the
   fault happens. 1 no space, 2 an I/O error, 3 half of the bytes and then no space, 4 the process ends, half written.
   Connections to other machines and look-ups of their names are counted too. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NO_SPACE = 1, IO_ERROR, SHORT, DEATH };

struct state {
    volatile int64_t count, at;
    volatile int32_t kind, fired, full, connections;
};

static struct state *now;
static char root[PATH_MAX];
static size_t length;

/* Begin to count: `file` is the state, `below` the folder, whose real path it is. Children do so by themselves. */
int faults_begin(const char *file, const char *below) {
    int fd = open(file, O_RDWR);
    if (fd < 0)
        return -1;
    void *place = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (place == MAP_FAILED)
        return -1;
    strncpy(root, below, sizeof root - 1);
    length = strlen(root);
    now = place;
    return 0;
}

__attribute__((constructor)) static void inherit(void) {
    const char *file = getenv("FAULTS_STATE"), *below = getenv("FAULTS_ROOT");
    if (file && below)
        faults_begin(file, below);
}

static int inside(const char *path) { return !strncmp(path, root, length) && (path[length] == '/' || !path[length]); }

static int watched(int fd) {
    char link[64], path[PATH_MAX];
    ssize_t size;
    if (!now)
        return 0;
    strcpy(link, "/proc/self/fd/");
    int digits = 0;
    char number[16];
    for (int rest = fd; rest || !digits; rest /= 10)
        number[digits++] = '0' + rest % 10;
    size_t end = strlen(link);
    while (digits)
        link[end++] = number[--digits];
    link[end] = 0;
    size = readlink(link, path, sizeof path - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    return inside(path);
}

static int below(int folder, const char *path) {
    char full[PATH_MAX];
    if (!now)
        return 0;
    if (path[0] == '/')
        return inside(path);
    if (folder != AT_FDCWD)
        return watched(folder);
    return getcwd(full, sizeof full) != NULL && inside(full);
}

/* Kind of the fault that this call is to meet, 0 where it is none. */
static int meets(void) {
    if (__sync_add_and_fetch(&now->count, 1) != now->at)
        return 0;
    now->fired = 1;
    return now->kind;
}

static int failed(int kind) {
    if (kind == DEATH)
        _exit(99);
    errno = kind == IO_ERROR ? EIO : ENOSPC;
    return -1;
}

/* libc's own function, looked up once. */
#define REAL(name)                                       \
    static __typeof__(&name) real;                       \
    if (!real)                                           \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *bytes, size_t size) {
    REAL(write);
    if (!watched(fd))
        return real(fd, bytes, size);
    int kind = now->full ? NO_SPACE : meets();
    now->full = 0;
    if (!kind)
        return real(fd, bytes, size);
    if (kind >= SHORT && size > 1) {
        ssize_t half = real(fd, bytes, size / 2);
        if (kind == DEATH)
            _exit(99);
        now->full = 1;
        return half;
    }
    return failed(kind);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t place) {
    REAL(pwrite64);
    int kind = watched(fd) ? meets() : 0;
    return kind ? failed(kind) : real(fd, bytes, size, place);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t place) { return pwrite64(fd, bytes, size, place); }

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    int kind = watched(fd) ? meets() : 0;
    return kind ? failed(kind) : real(fd, parts, count);
}

int fsync(int fd) {
    REAL(fsync);
    int kind = watched(fd) ? meets() : 0;
    return kind ? failed(kind) : real(fd);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    int kind = watched(fd) ? meets() : 0;
    return kind ? failed(kind) : real(fd);
}

int rename(const char *from, const char *to) {
    REAL(rename);
    int kind = below(AT_FDCWD, to) ? meets() : 0;
    return kind ? failed(kind) : real(from, to);
}

int renameat(int a, const char *from, int b, const char *to) {
    REAL(renameat);
    int kind = below(b, to) ? meets() : 0;
    return kind ? failed(kind) : real(a, from, b, to);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    REAL(renameat2);
    int kind = below(b, to) ? meets() : 0;
    return kind ? failed(kind) : real(a, from, b, to, flags);
}

int connect(int fd, const struct sockaddr *to, socklen_t size) {
    REAL(connect);
    if (now && to->sa_family != AF_UNIX)
        __sync_add_and_fetch(&now->connections, 1);
    return real(fd, to, size);
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    REAL(getaddrinfo);
    if (now)
        __sync_add_and_fetch(&now->connections, 1);
    return real(name, service, hints, found);
}
