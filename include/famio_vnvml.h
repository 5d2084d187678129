/* famio_vnvml.h: the interface of vNVML (MSST 2019; CCF THPC 2020: algorithms 1 and 2, sections 3 and 4) over atomic
 * files: memory over files, and transactions that change it durably, in one region or in several, as a whole or not at
 * all.
 *
 * Functions that return an int return 0, or -1 and errno; nverrmsg() (famio.h) returns a sentence about the error.
 * docs/api.md says what each call makes durable and where this differs from the paper; nv_init(3) has all errors. Sizes
 * are in bytes. Only nv_allocate() and nv_commit() make anything durable.
 *
 * Errors of all but nv_init(): ENOTCONN: nv_init() was not called; ECHILD: it was, by the parent of this process, and
 * the child has to call it itself. EDEADLK, of all: in a signal handler that interrupted a call on an atomic file.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef FAMIO_VNVML_H
#define FAMIO_VNVML_H

#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Begins the use of this interface. Journals of all regions lie in the folder `pool`, which must exist; null: where
 * FAMIO_POOL says, by default beside each file. EISCONN: it was called already; ENOENT, ENOTDIR: no such folder. */
int nv_init(const char *pool);

/* Frees all regions, and ends the use. EBUSY: a transaction is open. */
int nv_release(void);

/* Kinds of regions. */
#define NV_PRIVATE 1 /* the program's own memory: stores by pointer stay there, and are never durable */
#define NV_SHARED 2  /* read-only memory: shows what any process has committed */

/* A region: memory over the first `size` bytes of a file, which is recovered, and created or made longer if necessary.
 * On return the file and its size are durable. A file has one private region, or any number of shared ones, in all
 * processes. Null and errno: EBUSY: it has another region, and one of the two is private, or another process changes
 * the file; EINVAL: a size of 0, or an unknown kind; ENODEV: not a regular file; EFBIG: the file cannot be so large;
 * ENOSPC, EDQUOT, ENOMEM: no room; EXDEV: the program has the file open with another pool; EOPNOTSUPP: the file system
 * is not supported; ESHUTDOWN: the process is ending; and those of open(2). */
void *nv_allocate(const char *path, size_t size, int kind);

/* Unmaps a region, and closes its file. EBUSY: an open transaction has written to it; EINVAL: no region begins here;
 * ESTALE: it was freed. */
int nv_free(void *region);

/* Writes what is committed back to the file, and drops pages of a private region whose bytes the file has, too. Returns
 * how many bytes of memory were dropped. No thread may write to the region meanwhile. Errors of nv_free(); EOPNOTSUPP:
 * Linux is older than 6.7. */
ssize_t nv_trim(void *region);

/* A transaction, of the thread that begins it, whose end aborts it. A thread has one at a time: null and EALREADY. Of
 * the calls below, EPERM: it is another thread's; EINVAL: it has ended. */
typedef struct nv_tx nv_tx;

nv_tx *nv_txbegin(void);

/* Writes to a region, at an address in it: as a part of the transaction. A private region shows the bytes at once, a
 * shared one from the commit on. All n bytes, or none. ERANGE: they do not lie in one region; ESTALE: it was freed;
 * EXDEV: it is in another pool than the others; EBUSY: it is being trimmed; EFAULT: a bad source; EFBIG, ENOMEM,
 * ENOSPC: no room; EIO: another program has made the file shorter. */
int nv_write(nv_tx *tx, void *in_region, const void *src, size_t n);

/* On return all of the transaction is durable, in all of its regions. If it fails nothing of it is (EIO: all or
 * nothing), and private regions are as before their nv_write calls. It ends the transaction, except after EPERM,
 * ECHILD, EBUSY (a call with it was interrupted) and EDEADLK. ENOSPC, EDQUOT: no room in a file or in the pool; E2BIG:
 * more than 1 GiB in several regions; EXDEV: the files differ in owner, group or mode. */
int nv_commit(nv_tx *tx);

/* Ends the transaction, with the exceptions of nv_commit(): private regions get back the bytes that nv_write has
 * overwritten. */
int nv_abort(nv_tx *tx);

#ifdef __cplusplus
}
#endif

#endif
