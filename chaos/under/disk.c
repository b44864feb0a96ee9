/* A disk that can lose power, be slow, and be full: preloaded into a server (LD_PRELOAD), used by disk.py.

   What the server writes goes to real files, as ever: they are its page cache. Beside them, in the folder
   $RELAY_DISK, stands what a real disk would still have after a power loss:

   log      a line for each event, in order, behind its effect; a line without its end did not happen
            S <inode> <bytes> <began> <name>         fsync or fdatasync of a file returned, which began at that
                                                     microsecond of CLOCK_MONOTONIC: so many bytes of the file,
                                                     under this name, are on the disk
            N <directory>\t<inode> <name>\t...       fsync of a directory returned: these are its names
            C <inode> <bytes>                        a file was cut to that length
   inodes/  a hard link to each file that the log names, so that it outlives its name, and its number is not
            given to another
   control  what disk.py asks for, and what it counts; mapped by both

   Bytes count as synced if they were written before fsync began: it is measured before the call, and before
   what slowness adds to it. So whoever sees that fsync has returned finds the line in the log.

   The file `log` of the server itself is not on this disk: a judge reads it. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
    _Atomic int64_t sync_us;  /* microseconds that each fsync takes longer */
    _Atomic int64_t write_us; /* microseconds that each write takes longer */
    _Atomic int64_t limited;  /* 1: only `room` more bytes can be written */
    _Atomic int64_t room;
    _Atomic int64_t syncs;   /* how many fsyncs have returned */
    _Atomic int64_t refused; /* how many writes found no room */
    _Atomic int64_t slowed;  /* how many calls were made slower */
    _Atomic int64_t loaded;  /* how many processes have had this library */
};

static struct control *control;
static char root[PATH_MAX], side[PATH_MAX];
static size_t root_length;
static int log_file = -1;
static size_t (*real_fwrite)(const void *, size_t, size_t, FILE *);

__attribute__((constructor)) static void begin(void) {
    const char *disk = getenv("RELAY_DISK"), *directory = getenv("RELAY_DISK_ROOT");
    char path[PATH_MAX + 16];
    real_fwrite = dlsym(RTLD_NEXT, "fwrite");
    if (!disk || !directory) return;
    snprintf(side, sizeof side, "%s/inodes", disk);
    root_length = (size_t)snprintf(root, sizeof root, "%s", directory);
    snprintf(path, sizeof path, "%s/log", disk);
    log_file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    snprintf(path, sizeof path, "%s/control", disk);
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (log_file < 0 || mapped == MAP_FAILED) {
        fprintf(stderr, "disk: %s can't be used: %s\n", disk, strerror(errno));
        _exit(70);
    }
    syscall(SYS_close, file);
    control = mapped;
    control->loaded++;
}

/* The name within the root of what `fd` is open on, or NULL if it is not on this disk. "" is the root itself. */
static const char *name_of(int fd, char *path) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return NULL;
    path[length] = 0;
    if (strncmp(path, root, root_length)) return NULL;
    const char *name = path + root_length;
    if (*name == '/') return strcmp(name, "/log") ? name + 1 : NULL;
    return *name ? NULL : name;
}

static void note(const char *line, size_t length) {
    if (syscall(SYS_write, log_file, line, length) != (long)length) _exit(71); /* a record with a hole is none */
}

/* Keep the file behind `name`, seen from the directory `at`, alive under its inode's number. */
static void keep(int at, const char *name, unsigned long inode) {
    char kept[PATH_MAX + 32];
    snprintf(kept, sizeof kept, "%s/%lu", side, inode);
    linkat(at, name, AT_FDCWD, kept, AT_SYMLINK_FOLLOW); /* it may be there already, or be deleted */
}

static int64_t now_us(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now); /* not libc's: a library before this one may fake it */
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

/* Stand as long as control asks for. Who heals the disk meanwhile ends that. */
static void take_time(_Atomic int64_t *asked) {
    if (*asked <= 0) return;
    control->slowed++;
    for (int64_t begun = now_us(), left; (left = *asked - (now_us() - begun)) > 0;) {
        struct timespec step = {0, left < 2000 ? left * 1000 : 2000000};
        syscall(SYS_nanosleep, &step, NULL);
    }
}

/* ------------------------------------------------------------------------------ fsync */

static void note_names(int fd, const char *name) {
    int again = (int)syscall(SYS_openat, fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *entries = again < 0 ? NULL : fdopendir(again);
    char *line = NULL;
    size_t length = 0;
    FILE *out = entries ? open_memstream(&line, &length) : NULL;
    if (!out) _exit(71);
    fprintf(out, "N %s", name);
    for (struct dirent *entry; (entry = readdir(entries));) {
        struct stat is;
        if (fstatat(fd, entry->d_name, &is, AT_SYMLINK_NOFOLLOW) || !S_ISREG(is.st_mode)) continue;
        if (!*name && !strcmp(entry->d_name, "log")) continue;
        keep(fd, entry->d_name, is.st_ino);
        fprintf(out, "\t%lu %s", (unsigned long)is.st_ino, entry->d_name);
    }
    fputc('\n', out);
    fclose(out);
    note(line, length);
    free(line);
    closedir(entries);
}

static int synced(int fd, long call) {
    char path[PATH_MAX], link[40], line[PATH_MAX + 64];
    struct stat is;
    const char *name = control && !fstat(fd, &is) ? name_of(fd, path) : NULL;
    if (!name) return (int)syscall(call, fd);
    if (S_ISREG(is.st_mode)) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        keep(AT_FDCWD, link, is.st_ino);
    }
    int64_t began = now_us();
    take_time(&control->sync_us);
    int result = (int)syscall(call, fd);
    if (result) return result;
    if (S_ISDIR(is.st_mode)) {
        note_names(fd, name);
    } else if (is.st_nlink) {
        note(line, (size_t)snprintf(line, sizeof line, "S %lu %lld %lld %s\n", (unsigned long)is.st_ino,
                                    (long long)is.st_size, (long long)began, name));
    }
    control->syncs++;
    return 0;
}

int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

/* --------------------------------------------------------------------------- cut files */

static int note_cut(int result, const struct stat *is, off_t length) {
    char line[64];
    if (!result) note(line, (size_t)snprintf(line, sizeof line, "C %lu %lld\n", (unsigned long)is->st_ino, (long long)length));
    return result;
}

int ftruncate64(int fd, off_t length) {
    char path[PATH_MAX];
    struct stat is;
    int ours = control && !fstat(fd, &is) && name_of(fd, path);
    int result = (int)syscall(SYS_ftruncate, fd, length);
    return ours ? note_cut(result, &is, length) : result;
}

int truncate64(const char *path, off_t length) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
    if (fd < 0) return -1;
    int result = ftruncate64(fd, length), reason = errno;
    syscall(SYS_close, fd);
    errno = reason;
    return result;
}

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }
int truncate(const char *path, off_t length) { return truncate64(path, length); }

int open64(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, mode_t);
        va_end(more);
    }
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (fd >= 0 && control && flags & O_TRUNC) {
        char name[PATH_MAX];
        struct stat is;
        if (!fstat(fd, &is) && S_ISREG(is.st_mode) && name_of(fd, name)) note_cut(0, &is, 0);
    }
    return fd;
}

int open(const char *path, int flags, ...) __attribute__((alias("open64"))); /* off_t has 64 bits here */

/* ------------------------------------------------------------------------------ writes */

/* How many of `size` bytes may be written to `fd`; 0, with errno, if there is no room. */
static size_t allowed(int fd, size_t size) {
    char path[PATH_MAX];
    struct stat is;
    if (!control || !size || (control->write_us <= 0 && !control->limited)) return size;
    if (fstat(fd, &is) || !S_ISREG(is.st_mode) || !name_of(fd, path)) return size;
    take_time(&control->write_us);
    int64_t room = control->room, taken;
    do {
        if (!control->limited) return size;
        taken = room < (int64_t)size ? room : (int64_t)size;
        if (taken <= 0) {
            control->refused++;
            errno = ENOSPC;
            return 0;
        }
    } while (!__atomic_compare_exchange_n((int64_t *)&control->room, &room, room - taken, 0, __ATOMIC_SEQ_CST,
                                          __ATOMIC_SEQ_CST));
    return (size_t)taken;
}

ssize_t write(int fd, const void *bytes, size_t size) {
    size_t may = allowed(fd, size);
    return size && !may ? -1 : syscall(SYS_write, fd, bytes, may);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    size_t size = 0;
    for (int each = 0; each < count; each++) size += parts[each].iov_len;
    size_t may = allowed(fd, size);
    if (may == size) return syscall(SYS_writev, fd, parts, count);
    return may ? syscall(SYS_write, fd, parts[0].iov_base, may < parts[0].iov_len ? may : parts[0].iov_len) : -1;
}

/* Files that are written through stdio: snapshots, and the base of an append-only file. */
size_t fwrite(const void *bytes, size_t size, size_t count, FILE *file) {
    if (control && allowed(fileno(file), size * count) < size * count) {
        errno = ENOSPC;
        return 0;
    }
    return real_fwrite(bytes, size, count, file);
}
