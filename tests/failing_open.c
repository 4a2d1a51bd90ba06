/* A storage that answers with an error: preloaded, opening a path that ends with FAIL_PATH fails with FAIL_ERRNO, in
   each process for the first FAIL_TIMES calls, and for ever without that variable. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

static int calls;

static int fails(const char *path) {
    const char *end = getenv("FAIL_PATH"), *times = getenv("FAIL_TIMES");
    if (!path || !end || strlen(path) < strlen(end) || strcmp(path + strlen(path) - strlen(end), end)) return 0;
    if (times && calls >= atoi(times)) return 0;
    calls++;
    errno = atoi(getenv("FAIL_ERRNO"));
    return 1;
}

#define MODE(last) va_list rest; va_start(rest, last); mode_t mode = va_arg(rest, mode_t); va_end(rest)

#define OPEN(name)                                                              \
    int name(const char *path, int flags, ...) {                                \
        MODE(flags);                                                            \
        if (fails(path)) return -1;                                             \
        return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode); \
    }
#define OPENAT(name)                                                            \
    int name(int folder, const char *path, int flags, ...) {                    \
        MODE(flags);                                                            \
        if (fails(path)) return -1;                                             \
        return ((int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, #name))(folder, path, flags, mode); \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

DIR *opendir(const char *path) {
    if (fails(path)) return NULL;
    return ((DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir"))(path);
}
