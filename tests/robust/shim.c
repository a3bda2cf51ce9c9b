/* A failing disk: the n-th call that changes files under a folder fails, kills the process, or both halves of it.
   Loaded by LD_PRELOAD; `fault_arm` is called through ctypes. Built by faults.py with `cc -shared -fPIC shim.c -o shim.so -ldl`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, KILL_BEFORE, KILL_HALF, KILL_AFTER, FAIL_ONCE, FAIL_ON };
static char root[PATH_MAX];
static long at, seen;
static int kind, code, armed;

void fault_arm(const char *folder, long number, int what, int error) {
    snprintf(root, sizeof root, "%s", folder);
    at = number, kind = what, code = error, seen = 0, armed = 1;
}
long fault_seen(void) { return seen; }
void fault_disarm(void) { armed = 0; }

static int inside(const char *path) { return armed && path && strncmp(path, root, strlen(root)) == 0; }
static int inside_fd(int fd) {
    char link[64], path[PATH_MAX];
    if (!armed) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return inside(path);
}
static void die(void) { kill(getpid(), SIGKILL); for (;;) pause(); }
/* Whether this call has to fail; `allocates`: a full disk refuses it. */
static int fails(int allocates) {
    if (kind == FAIL_ON && code == ENOSPC && !allocates) return 0;
    long number = seen++;
    if (number == at && kind == KILL_BEFORE) die();
    int now = (kind == FAIL_ONCE && number == at) || (kind == FAIL_ON && number >= at);
    if (now) errno = code;
    return now;
}
static void after(void) { if (kind == KILL_AFTER && seen - 1 == at) die(); }
#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define GUARDED(condition, allocates, type, call) \
    if (!(condition)) return call; \
    if (fails(allocates)) return (type)-1; \
    type result = call; int kept = errno; after(); errno = kept; return result

#define OPENER(name) \
int name(const char *path, int flags, ...) { \
    REAL(name); va_list list; va_start(list, flags); mode_t mode = va_arg(list, mode_t); va_end(list); \
    GUARDED((flags & O_ACCMODE) != O_RDONLY && inside(path), 1, int, real(path, flags, mode)); }
OPENER(open)
OPENER(open64)
#define OPENER_AT(name) \
int name(int folder, const char *path, int flags, ...) { \
    REAL(name); va_list list; va_start(list, flags); mode_t mode = va_arg(list, mode_t); va_end(list); \
    GUARDED((flags & O_ACCMODE) != O_RDONLY && inside(path), 1, int, real(folder, path, flags, mode)); }
OPENER_AT(openat)
OPENER_AT(openat64)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    if (!inside_fd(fd)) return real(fd, data, size);
    if (kind == KILL_HALF && seen == at) { real(fd, data, size / 2); die(); }
    if (kind >= FAIL_ONCE && seen == at && size > 1 && code == ENOSPC) { /* a disk that fills up takes a part first */
        ssize_t part = real(fd, data, size / 2);
        if (part > 0) { at++; seen++; return part; }
    }
    GUARDED(1, 1, ssize_t, real(fd, data, size));
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t where) {
    REAL(pwrite64);
    GUARDED(inside_fd(fd), 1, ssize_t, real(fd, data, size, where));
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    GUARDED(inside_fd(fd), 1, ssize_t, real(fd, parts, count));
}
int fsync(int fd) { REAL(fsync); GUARDED(inside_fd(fd), 1, int, real(fd)); }
int ftruncate64(int fd, off64_t size) { REAL(ftruncate64); GUARDED(inside_fd(fd), 1, int, real(fd, size)); }
int rename(const char *from, const char *to) { REAL(rename); GUARDED(inside(to), 1, int, real(from, to)); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); GUARDED(inside(path), 1, int, real(path, mode)); }
int unlink(const char *path) { REAL(unlink); GUARDED(inside(path), 0, int, real(path)); }
int rmdir(const char *path) { REAL(rmdir); GUARDED(inside(path), 0, int, real(path)); }
