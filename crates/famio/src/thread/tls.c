/* The thread's block of state, reached without __tls_get_addr: the interposer is loaded at start-up, so that the
 * initial-exec model is open to it, and nothing is allocated at a thread's first access. */
#include <stdint.h>

struct famio_thread {
    uint64_t words[20]; /* laid out by thread/mod.rs */
};

/* Hidden, and not static: `current` in mod.rs names it. */
__thread struct famio_thread famio_thread_words __attribute__((tls_model("initial-exec"), visibility("hidden")));

struct famio_thread *famio_thread_block(void) { return &famio_thread_words; }

/* A signal that waits for the end of a call; laid out by thread/handlers.rs. Apart from the block, since it is rarely used. */
struct famio_postponed {
    uint64_t words[18];
};

static __thread struct famio_postponed postponed __attribute__((tls_model("initial-exec")));

struct famio_postponed *famio_postponed_signal(void) { return &postponed; }
