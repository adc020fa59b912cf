/* Functions that glibc has as symbols only since 2.33 (stat) and 2.30 (gettid), for a shared object that loads in
 * older ones. They are system calls; the kernel's struct stat is glibc's struct stat64 on x86-64. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OWN __attribute__((visibility("hidden")))

struct stat64;

OWN int stat64(const char *path, struct stat64 *status)
{
        return (int)syscall(SYS_stat, path, status);
}

OWN int lstat64(const char *path, struct stat64 *status)
{
        return (int)syscall(SYS_lstat, path, status);
}

OWN int fstat64(int file, struct stat64 *status)
{
        return (int)syscall(SYS_fstat, file, status);
}

OWN int fstatat64(int folder, const char *path, struct stat64 *status, int flags)
{
        return (int)syscall(SYS_newfstatat, folder, path, status, flags);
}

OWN int gettid(void)
{
        return (int)syscall(SYS_gettid);
}
