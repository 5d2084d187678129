/* famio.h: files whose changes between two SYNCs are durable as a whole or, after a crash, gone as a whole.
 *
 * Each call is like the POSIX call of its name: arguments, results, errno. nverrmsg() returns a sentence about the last
 * error of the thread. On a descriptor, or memory, that belongs to no atomic file, each is that POSIX call. Offsets and
 * sizes are in bytes. Any thread may make any call; several processes may have a file open, and share its epoch.
 *
 * Errors of any call on an atomic file: EBUSY: another process has the file and keeps it; EIO: an earlier SYNC failed
 * (the file takes no more writes), or its journal cannot be used; EDEADLK: in a signal handler that interrupted such a
 * call, or, with a message, another process is stuck in one; ENOSYS: `famio run` is of another version. Comments here
 * name only errors that a call has besides these and those of its POSIX call; its man page has all.
 *
 * docs/api.md and famio(7) say how the calls fit together, and what a SYNC survives.
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

/* Advice for nvadvise(), with the numbers of POSIX_MADV_NORMAL and so on. */
#define NVADV_NORMAL 0     /* the library decides by what it observes */
#define NVADV_RANDOM 1     /* ends mapping ahead */
#define NVADV_SEQUENTIAL 2 /* starts mapping ahead in the background, with the largest window */
#define NVADV_WILLNEED 3   /* starts reading in and mapping all of the range */
#define NVADV_DONTNEED 4   /* drops page tables, and what the mapping cache has of the file; no bytes change */

/* Flags for nvrecover(). */
#define NVRECOVER_DRY_RUN 1     /* only report; change nothing */
#define NVRECOVER_USE_JOURNAL 2 /* if another program changed the file, the journal counts */
#define NVRECOVER_USE_FILE 4    /* if another program changed the file, the file counts */

/* Counters of a file. Later versions may add to the end. While the file has no journal, all but `size` and `mapped` are
 * 0: a file that is new, only grows, or has a few bytes overwritten, may have none (FAMIO_JOURNAL). */
struct nvcounters {
  uint64_t size;         /* in bytes, including the open epoch */
  uint64_t committed;    /* epochs that its journal has committed */
  uint64_t epoch_writes; /* writes since the last SYNC */
  uint64_t epoch_bytes;  /* their bytes */
  uint64_t epoch_reads;  /* reads since the last SYNC that did not come from maps */
  uint64_t mapped;       /* mapped bytes; bytes mapped several times count as often */
  uint32_t attached;     /* 1: it has a journal */
  uint32_t dirty;        /* 1: something was written since the last SYNC; stores in maps count from the next SYNC on */
};

/* Opens a file, makes it atomic in this process, and recovers it first. The descriptor is never 0, 1 or 2. EINVAL: not
 * a regular file, or a bad setting in the environment; EBUSY: the file was demoted in this process; ESHUTDOWN: the
 * process is ending. */
int nvopen(const char *path, int flags, ... /* mode_t mode */);
int nvopenat(int dirfd, const char *path, int flags, ... /* mode_t mode */);

/* Closes a descriptor. The last one of an unmapped file commits the open epoch, and leaves an ordinary file without a
 * journal; if other processes have the file open for writing, they commit it instead. EIO: that commit failed; the
 * descriptor is closed all the same, and the file is as a whole as it was closed or as at its last SYNC. */
int nvclose(int fd);

/* Reads and writes. Writes, and changes of the size, belong to the open epoch: every call and map shows them at once,
 * in all processes. A crash before the next SYNC takes them back; so does a kill, unless FAMIO_ON_KILL=keep. ENOSPC,
 * EDQUOT: no room in the file, or in its journal: SYNC, and try again. EOPNOTSUPP, at the first write: the file system
 * is not supported. */
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

/* SYNC: on return, all that was written to the file, copied to its maps or stored there before the call is durable, as
 * a whole, whichever process wrote it. What it survives depends on the storage of the file (docs/guarantees.md).
 * nvfdatasync() does the same; nvmsync() with MS_SYNC does it for all of each file that is mapped in the range. EIO:
 * not durable; the file takes no more writes, and after the next open it is as at this SYNC or the one before. ENOSPC,
 * EDQUOT: no room for what was stored in maps, which a later SYNC may commit. */
int nvfsync(int fd);
int nvfdatasync(int fd);
int nvmsync(void *addr, size_t length, int flags);

/* Maps: shared ones are regions, which may be stored to through pointers and by the copies below; both belong to the
 * open epoch. Access beyond the end of the file raises SIGBUS. EBUSY: another process has mapped the file and keeps it.
 * ENOMEM: the file is larger than FAMIO_MAP_MEMORY, and Linux is older than 6.7, or the bytes are mapped already and
 * one of the maps is writable. EOPNOTSUPP: MAP_SYNC. EINVAL: NVMAP_COPIES with MAP_PRIVATE.
 *
 * With NVMAP_COPIES and PROT_WRITE, only the copies below and transactions change the map; a store through a pointer is
 * a SIGSEGV. A SYNC need not look for stores then, which takes 0.4 ms for each GiB of a map that is in use. In a forked
 * child, a copy to it fails with EBUSY. It means nothing for a file larger than FAMIO_MAP_MEMORY, and an ordinary one. */
#define NVMAP_COPIES 0x2000000
void *nvmmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset);
int nvmunmap(void *addr, size_t length);
void *nvmremap(void *old_address, size_t old_size, size_t new_size, int flags, ... /* void *new_address */);

/* How a range of maps will be used, for map-ahead (HotStorage 2017, section 4). EINVAL: the address is not
 * page-aligned, or the advice is unknown; ENOMEM: a part of the range is not a map of an atomic file. */
int nvadvise(void *addr, size_t length, int advice);

/* Copies. Each side may lie in a map or not, and they may overlap. What is copied to a map is in the epoch of the next
 * SYNC; a SYNC at the same time may commit a part of it. Null with errno: ENXIO, beyond the end of the file; EACCES, a
 * map that may not be stored to; ENOMEM, out of memory, a part may have been copied. */
void *nvmemcpy(void *dest, const void *src, size_t n);
void *nvmemmove(void *dest, const void *src, size_t n);
void *nvmemset(void *dest, int c, size_t n);
char *nvstrcpy(char *dest, const char *src);

/* Transactions: changes stay in memory until the commit, which applies them to its files as a whole or not at all,
 * and SYNCs them. A transaction reads what the file shows, overlaid with its own writes. nvtx_commit() and
 * nvtx_abort() end it, whatever they return, except after EBUSY. Source: vNVML (CCF THPC 2020), sections 3 and 4.
 *
 * Errors of all: EINVAL: the transaction has ended, or a bad flag, offset or address; EBUSY: another thread is in a
 * call with it; ETIMEDOUT: its time limit has passed; ECHILD: the parent process began it; EBADF: the file is closed,
 * not atomic, or not open for this; EXDEV: the file has not joined. Nothing was done then. */
typedef struct nvtx nvtx;

#define NVTX_CHECK 1  /* the commit fails with EAGAIN if what was read or overwritten has changed */
#define NVTX_NOSYNC 2 /* the commit is not a SYNC: durable with the next SYNC */

/* Begins a transaction on a file that is open for writing. Null and errno: ENOMEM: too many are open. */
nvtx *nvtx_begin(int fd, int flags);

/* Adds a file: the commit covers all files or none. They have one pool, owner, group and mode (else EXDEV from the
 * commit). EINVAL: NVTX_NOSYNC. */
int nvtx_join(nvtx *tx, int fd);
int nvtx_timeout(nvtx *tx, unsigned int milliseconds); /* aborts it so long from now; 0, the default: never */

/* Writes and reads, in memory: all bytes of a write, or none. nvtx_memcpy() writes to the file at the place that a
 * writable map has in_region of; null and errno: EACCES, ENXIO, as for nvmemcpy(). EFBIG, ENOMEM, EFAULT. With
 * NVTX_CHECK, a read fails with EAGAIN if its bytes would not fit what was read before. */
ssize_t nvtx_pwrite(nvtx *tx, int fd, const void *buf, size_t count, off_t offset);
ssize_t nvtx_pread(nvtx *tx, int fd, void *buf, size_t count, off_t offset);
void *nvtx_memcpy(nvtx *tx, void *in_region, const void *src, size_t n);
int nvtx_ftruncate(nvtx *tx, int fd, off_t length);

/* Commits: on return, without NVTX_NOSYNC, all of the transaction is durable, with all that was written to its files
 * before. The files are unchanged after EAGAIN (see NVTX_CHECK), ENOSPC, EDQUOT, EFBIG, ENOMEM (no room), EXDEV, E2BIG
 * (more than 1 GiB in several files) and EOPNOTSUPP (a file was demoted, or is one of several and belongs to a group).
 * EIO: they take no more writes, and after the next open have all of it or nothing. */
int nvtx_commit(nvtx *tx);
void nvtx_abort(nvtx *tx); /* drops it; null is allowed */

/* Discards what was written to the file since its last SYNC or commit, by all threads of the process. EBUSY: another
 * process has written to it since, or it is mapped; EBADF: not open for writing; EOPNOTSUPP: it was demoted; EIO: the
 * journal cannot be recovered, and the next open tries again. */
int nvrollback(int fd);

/* Brings a file, or the files of a pool or below a folder, to their last SYNC after a crash; returns how many. nvopen()
 * does it by itself. EINVAL: bad flags; EBUSY: a file is in use; EIO: file and journal contradict each other, or the
 * journal cannot be read. An error of one file does not keep the others from being recovered. */
int nvrecover(const char *path, int flags);

/* Fills in at most `size` bytes of the counters of the file behind fd; fields unknown to the library are 0. EBADF: not
 * the descriptor of an atomic file. */
int nvcounters(int fd, struct nvcounters *counters, size_t size);

/* libc's words for an errno, and the message of this thread's last call that failed: both are in memory of the thread,
 * and valid until its next such call. Neither is ever null. */
const char *nvstrerror(int errnum);
const char *nverrmsg(void);

#ifdef __cplusplus
}
#endif

#endif
