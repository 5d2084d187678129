/* famio.h: files whose changes between two SYNCs are durable as a whole or, after a crash, gone as a whole.
 *
 * Each call is like the POSIX call of its name: arguments, results, errno. nverrmsg() returns a sentence about the last
 * error of the thread. On a descriptor, or memory, that belongs to no atomic file, each is that POSIX call.
 *
 * docs/api.md and famio(7) say how they fit together; each has a man page.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef FAMIO_H
#define FAMIO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. */
#define FAMIO_VERSION_MAJOR 0
#define FAMIO_VERSION_MINOR 1

/* A flag for open(2) under `famio run`: the file is atomic though no glob names it. nvopen() always sets it. Without
 * Famio the kernel ignores it. */
#ifndef O_ATOMIC
#define O_ATOMIC 0x40000000
#endif

/* Advice for nvadvise(): as POSIX_MADV_NORMAL and so on. */
#define NVADV_NORMAL 0
#define NVADV_RANDOM 1
#define NVADV_SEQUENTIAL 2
#define NVADV_WILLNEED 3
#define NVADV_DONTNEED 4

/* Flags for nvrecover(). */
#define NVRECOVER_DRY_RUN 1     /* only report; change nothing */
#define NVRECOVER_USE_JOURNAL 2 /* if another program changed the file, the journal counts */
#define NVRECOVER_USE_FILE 4    /* if another program changed the file, the file counts */

/* Counters of a file. Later versions may add to the end. */
struct nvcounters {
  uint64_t size;         /* in bytes, including the open epoch */
  uint64_t committed;    /* epochs that its journal has committed; 0 while it has none */
  uint64_t epoch_writes; /* writes since the last SYNC */
  uint64_t epoch_bytes;  /* their bytes */
  uint64_t epoch_reads;  /* reads since the last SYNC that did not come from maps */
  uint64_t mapped;       /* mapped bytes; bytes mapped several times count as often */
  uint32_t attached;     /* 1: it has a journal, from its first write on */
  uint32_t dirty;        /* 1: something was written since the last SYNC; stores in maps count from the next SYNC on */
};

/* Files. nvopen() makes what it opens atomic in this process, and recovers it first. */
int nvopen(const char *path, int flags, ... /* mode_t mode */);
int nvopenat(int dirfd, const char *path, int flags, ... /* mode_t mode */);
int nvclose(int fd);
ssize_t nvread(int fd, void *buf, size_t count);
ssize_t nvwrite(int fd, const void *buf, size_t count);
ssize_t nvpread(int fd, void *buf, size_t count, off_t offset);
ssize_t nvpwrite(int fd, const void *buf, size_t count, off_t offset);
ssize_t nvreadv(int fd, const struct iovec *iov, int iovcnt);
ssize_t nvwritev(int fd, const struct iovec *iov, int iovcnt);
ssize_t nvpreadv(int fd, const struct iovec *iov, int iovcnt, off_t offset);
ssize_t nvpwritev(int fd, const struct iovec *iov, int iovcnt, off_t offset);
off_t nvlseek(int fd, off_t offset, int whence);
int nvftruncate(int fd, off_t length);
int nvfstat(int fd, struct stat *statbuf);

/* SYNC: on return, all that was written to the file, copied to its maps or stored there before the call is durable. */
int nvfsync(int fd);
int nvfdatasync(int fd);
int nvmsync(void *addr, size_t length, int flags);

/* Maps: regions that may be stored to through pointers and by the copies below. */
void *nvmmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset);
int nvmunmap(void *addr, size_t length);
void *nvmremap(void *old_address, size_t old_size, size_t new_size, int flags, ... /* void *new_address */);
int nvadvise(void *addr, size_t length, int advice);

/* Copies. Each side may lie in a map or not, and they may overlap. Null with errno: ENXIO, beyond the end of the file;
 * EACCES, a map that may not be stored to; ENOMEM. */
void *nvmemcpy(void *dest, const void *src, size_t n);
void *nvmemmove(void *dest, const void *src, size_t n);
void *nvmemset(void *dest, int c, size_t n);
char *nvstrcpy(char *dest, const char *src);

/* Transactions: changes stay in memory until the commit, which applies them to its files as a whole or not at all,
 * and SYNCs them. A transaction reads what the file shows, overlaid with its own writes. nvtx_commit() and
 * nvtx_abort() end it, whatever they return. */
typedef struct nvtx nvtx;

#define NVTX_CHECK 1  /* the commit fails with EAGAIN if what was read or overwritten has changed */
#define NVTX_NOSYNC 2 /* the commit is not a SYNC: durable with the next SYNC */

nvtx *nvtx_begin(int fd, int flags);
int nvtx_join(nvtx *tx, int fd); /* adds a file of the same pool: the commit covers all files or none */
int nvtx_timeout(nvtx *tx, unsigned int milliseconds); /* from now on; 0: none */
ssize_t nvtx_pwrite(nvtx *tx, int fd, const void *buf, size_t count, off_t offset);
ssize_t nvtx_pread(nvtx *tx, int fd, void *buf, size_t count, off_t offset);
void *nvtx_memcpy(nvtx *tx, void *in_region, const void *src, size_t n);
int nvtx_ftruncate(nvtx *tx, int fd, off_t length);
int nvtx_commit(nvtx *tx);
void nvtx_abort(nvtx *tx);

/* Discards what was written to the file since its last SYNC. EBUSY: another process has written to it, or it is mapped. */
int nvrollback(int fd);

/* Brings a file, or the files below a folder, to their last SYNC after a crash; returns how many. nvopen() does it
 * by itself. */
int nvrecover(const char *path, int flags);

/* Fills in at most `size` bytes of the counters of the file behind fd. */
int nvcounters(int fd, struct nvcounters *counters, size_t size);

/* libc's words for an errno, and the message of this thread's last call that failed: both are valid until the next
 * such call. */
const char *nvstrerror(int errnum);
const char *nverrmsg(void);

#ifdef __cplusplus
}
#endif

#endif
