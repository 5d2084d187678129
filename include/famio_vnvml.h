/* famio_vnvml.h: the interface of vNVML (MSST 2019; CCF THPC 2020) over atomic files: memory over files, and
 * transactions that change it durably, in one region or in several, as a whole or not at all.
 *
 * Functions that return an int return 0, or -1 and errno; nverrmsg() (famio.h) returns a sentence about the error.
 * docs/api.md says what each call makes durable and where this differs from the paper; nv_init(3) has all errors.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef FAMIO_VNVML_H
#define FAMIO_VNVML_H

#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Begins the use of this interface. Journals of all regions lie in the folder `pool`; null: where FAMIO_POOL says, by
 * default beside each file. */
int nv_init(const char *pool);

/* Frees all regions, and ends the use. EBUSY: a transaction is open. */
int nv_release(void);

/* Kinds of regions. */
#define NV_PRIVATE 1 /* the program's own memory: stores by pointer stay there, and are never durable */
#define NV_SHARED 2  /* read-only memory: shows what any process has committed */

/* A region: memory over the first `size` bytes of a file, which is created, or made longer, if necessary. Null and errno
 * for an error. */
void *nv_allocate(const char *path, size_t size, int kind);
int nv_free(void *region);

/* Writes the program's memory back: drops pages of a private region whose bytes the file has, too. Returns how many
 * bytes of memory were dropped. No thread may write to the region meanwhile. */
ssize_t nv_trim(void *region);

/* A transaction, of the thread that begins it. A thread has one at a time. */
typedef struct nv_tx nv_tx;

nv_tx *nv_txbegin(void);

/* Writes to a region, at an address in it: as a part of the transaction. A private region shows the bytes at once, a
 * shared one from the commit on. */
int nv_write(nv_tx *tx, void *in_region, const void *src, size_t n);

/* On return all of the transaction is durable, in all of its regions. If it fails nothing of it is (EIO: all or
 * nothing), and private regions are as before their nv_write calls. It ends the transaction in any case. */
int nv_commit(nv_tx *tx);

/* Ends the transaction: private regions get back the bytes that nv_write has overwritten. */
int nv_abort(nv_tx *tx);

#ifdef __cplusplus
}
#endif

#endif
