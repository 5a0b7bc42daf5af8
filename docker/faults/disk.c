/* Makes a process's disk slow or read only: preloaded, told by the file that FAULTY_DISK names, for what
 * lies in the folder FAULTY_FOLDER.
 *
 * The file is mapped, so that whoever writes it is obeyed at the next call. It holds numbers of 64 bits:
 *
 *   0  1: read only. Files that are open refuse to be written too, as after an error of the disk; the
 *      kernel itself would not make a file system read only in which files are open for writing
 *   1  microseconds that each write and each sync takes longer
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static const volatile int64_t *told;
static const char *folder;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULTY_DISK");
    folder = getenv("FAULTY_FOLDER");
    int (*real_open)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
    int file = path && folder ? real_open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *found = mmap(NULL, 2 * sizeof *told, PROT_READ, MAP_SHARED, file, 0);
        if (found != MAP_FAILED) told = found;
        close(file);
    }
}

static int is_in_folder(const char *path) { return path && !strncmp(path, folder, strlen(folder)); }

static int is_file_in_folder(int file) {
    char name[64], path[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_in_folder(path);
}

/* Whether a write to a file is refused; one that is not is held up. */
static int is_refused(int file) {
    if (!told || !(told[0] || told[1])) return 0;
    int error = errno;
    int concerned = is_file_in_folder(file);
    if (concerned && told[1]) usleep((useconds_t)told[1]);
    errno = concerned && told[0] ? EROFS : error;
    return concerned && told[0];
}

static int is_path_refused(const char *path) {
    if (!told || !told[0] || !is_in_folder(path)) return 0;
    errno = EROFS;
    return 1;
}

#define REAL(name, type, ...)                                                                                 \
    static type (*real)(__VA_ARGS__);                                                                         \
    if (!real) real = dlsym(RTLD_NEXT, name)

#define WRITES(name, type, parameters, arguments, ...)                                                        \
    type name parameters {                                                                                    \
        REAL(#name, type, __VA_ARGS__);                                                                       \
        return is_refused(file) ? -1 : real arguments;                                                        \
    }

WRITES(write, ssize_t, (int file, const void *data, size_t size), (file, data, size), int, const void *, size_t)
WRITES(pwrite, ssize_t, (int file, const void *data, size_t size, off_t at), (file, data, size, at), int,
       const void *, size_t, off_t)
WRITES(pwrite64, ssize_t, (int file, const void *data, size_t size, off64_t at), (file, data, size, at), int,
       const void *, size_t, off64_t)
WRITES(writev, ssize_t, (int file, const struct iovec *parts, int count), (file, parts, count), int,
       const struct iovec *, int)
WRITES(pwritev, ssize_t, (int file, const struct iovec *parts, int count, off_t at), (file, parts, count, at), int,
       const struct iovec *, int, off_t)
WRITES(fsync, int, (int file), (file), int)
WRITES(fdatasync, int, (int file), (file), int)
WRITES(ftruncate, int, (int file, off_t size), (file, size), int, off_t)
WRITES(ftruncate64, int, (int file, off64_t size), (file, size), int, off64_t)
WRITES(fallocate, int, (int file, int mode, off_t at, off_t size), (file, mode, at, size), int, int, off_t, off_t)
WRITES(fallocate64, int, (int file, int mode, off64_t at, off64_t size), (file, mode, at, size), int, int, off64_t,
       off64_t)

#define OPENS(name, parameters, arguments, ...)                                                               \
    int name parameters {                                                                                     \
        REAL(#name, int, __VA_ARGS__, int, ...);                                                              \
        mode_t mode = 0;                                                                                      \
        if (flags & (O_CREAT | O_TMPFILE)) {                                                                  \
            va_list more;                                                                                     \
            va_start(more, flags);                                                                            \
            mode = va_arg(more, mode_t);                                                                      \
            va_end(more);                                                                                     \
        }                                                                                                     \
        if (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC) && is_path_refused(path)) return -1;              \
        return real arguments;                                                                                \
    }

OPENS(open, (const char *path, int flags, ...), (path, flags, mode), const char *)
OPENS(open64, (const char *path, int flags, ...), (path, flags, mode), const char *)
OPENS(openat, (int folder_file, const char *path, int flags, ...), (folder_file, path, flags, mode), int, const char *)
OPENS(openat64, (int folder_file, const char *path, int flags, ...), (folder_file, path, flags, mode), int,
      const char *)

#define CHANGES(name, parameters, arguments, ...)                                                             \
    int name parameters {                                                                                     \
        REAL(#name, int, __VA_ARGS__);                                                                        \
        return is_path_refused(path) ? -1 : real arguments;                                                   \
    }

CHANGES(rename, (const char *path, const char *to), (path, to), const char *, const char *)
CHANGES(unlink, (const char *path), (path), const char *)
CHANGES(mkdir, (const char *path, mode_t mode), (path, mode), const char *, mode_t)
CHANGES(rmdir, (const char *path), (path), const char *)
